(function () {
  "use strict";
  var LEAST_DRAG = 8, LEAST_SPAN_S = 0.002, groups = {}, number = 0;
  var first = document.querySelector("svg.chart");
  if (!first) { return; }

  function make(name, attributes) {
    var made = document.createElementNS(first.namespaceURI, name);
    Object.keys(attributes).forEach(function (key) { made.setAttribute(key, attributes[key]); });
    return made;
  }

  // Names stay visible where a chart is wider than the page and is scrolled.
  function holdNames(chart) {
    var left = +chart.dataset.left, box = chart.closest(".scroll");
    var names = Array.prototype.filter.call(chart.querySelectorAll("text"), function (text) {
      return +text.getAttribute("x") < left && !text.classList.contains("cursor-time");
    });
    var held = make("g", { "class": "names" });
    held.appendChild(make("rect", { x: 0, y: 0, width: left - 2, height: chart.viewBox.baseVal.height }));
    names.forEach(function (text) { held.appendChild(text); });
    chart.insertBefore(held, chart.querySelector(".cursor"));
    function hold() {
      var scale = chart.viewBox.baseVal.width / (chart.getBoundingClientRect().width || 1);
      held.setAttribute("transform", "translate(" + (box.scrollLeft * scale) + ")");
      held.classList.toggle("moved", box.scrollLeft > 0);
    }
    if (box) { box.addEventListener("scroll", hold); hold(); }
  }

  // What a zoom moves: every shape of the plot, with its places at the beginning.
  function shapesOf(chart) {
    var left = +chart.dataset.left, right = +chart.dataset.right, clip = "clip-" + (number += 1);
    var cut = make("clipPath", { id: clip });
    cut.appendChild(make("rect", { x: left, y: 0, width: right - left, height: chart.viewBox.baseVal.height }));
    chart.insertBefore(cut, chart.firstChild);
    return Array.prototype.filter.call(chart.querySelectorAll("rect,line,circle,path,polyline,text"), function (one) {
      return !one.closest(".names,.time-axis,clipPath,.panel,.cursor,.cursor-time,.selection") &&
        !(one.tagName === "text" && one.classList.contains("lane"));
    }).map(function (one) {
      var get = function (name) { return +one.getAttribute(name); };
      if (one.tagName === "rect") { return { one: one, from: get("x"), to: get("x") + get("width") }; }
      if (one.tagName === "line") { return { one: one, from: get("x1"), to: get("x2") }; }
      if (one.tagName === "circle") { return { one: one, from: get("cx"), name: "cx" }; }
      if (one.tagName === "text") { return { one: one, from: get("x"), name: "x" }; }
      if (one.tagName === "polyline") {
        one.setAttribute("clip-path", "url(#" + clip + ")");
        return { one: one, points: one.getAttribute("points") };
      }
      var path = one.getAttribute("d");
      if (/[hlz]/.test(path)) { return { one: one, from: +/^M([\d.]+)/.exec(path)[1], marker: true }; }
      one.setAttribute("clip-path", "url(#" + clip + ")");
      return { one: one, path: path };
    });
  }

  function draw(chart, view) {
    var left = +chart.dataset.left, right = +chart.dataset.right;
    var begin = +chart.dataset.begin, end = +chart.dataset.end, k = (end - begin) / (view.to - view.from);
    var origin = left + (view.from - begin) / (end - begin) * (right - left);
    var round = function (x) { return Math.round(x * 100) / 100; };
    var x = function (at) { return round(left + (at - origin) * k); };
    if (!chart.shapes) { chart.shapes = shapesOf(chart); }
    chart.shapes.forEach(function (shape) {
      var one = shape.one, a = x(shape.from), b = x(shape.to), visible = true;
      if (shape.path) {
        one.setAttribute("d", shape.path.replace(/([MLH])([\d.-]+)/g, function (_, word, at) { return word + x(+at); }));
      } else if (shape.points) {
        one.setAttribute("points", shape.points.replace(/([\d.-]+),/g, function (_, at) { return x(+at) + ","; }));
      } else if (shape.marker) {
        one.setAttribute("transform", "translate(" + round(a - shape.from) + ")");
        visible = a >= left - 5 && a <= right;
      } else if (one.tagName === "rect" || one.tagName === "line") {
        visible = b >= left && a <= right;
        a = Math.max(a, left); b = Math.min(b, right);
        if (one.tagName === "line") {
          one.setAttribute("x1", a); one.setAttribute("x2", shape.from === shape.to ? a : b);
        } else if (visible) {
          one.setAttribute("x", a); one.setAttribute("width", Math.max(b - a, 0.6));
        }
      } else {
        one.setAttribute(shape.name, a);
        visible = a >= left - 1 && a <= right + 1;
      }
      one.style.display = visible ? "" : "none";
    });
    Array.prototype.forEach.call(chart.querySelectorAll(".time-axis"), function (axis) { drawAxis(axis, view, left, right); });
    chart.dataset.from = view.from; chart.dataset.to = view.to;
  }

  function drawAxis(axis, view, left, right) {
    var rough = (view.to - view.from) / 10, power = Math.pow(10, Math.floor(Math.log10(rough)));
    var step = [1, 2, 5, 10].map(function (factor) { return factor * power; }).filter(function (one) { return one >= rough * 0.999; })[0];
    axis.textContent = "";
    for (var index = Math.ceil(view.from / step - 1e-9); index * step <= view.to + step * 1e-9; index += 1) {
      var x = left + (index * step - view.from) / (view.to - view.from) * (right - left);
      axis.appendChild(make("line", { "class": "grid", x1: x, x2: x, y1: axis.dataset.top, y2: axis.dataset.bottom }));
      var text = make("text", { "class": "tick", x: x, y: +axis.dataset.bottom + 15, "text-anchor": "middle" });
      text.textContent = +(index * step).toPrecision(10) + " s";
      axis.appendChild(text);
    }
  }

  function show(group, from, to) {
    var whole = group.end - group.begin, span = Math.min(Math.max(to - from, LEAST_SPAN_S), whole);
    from = Math.min(Math.max(from, group.begin), group.end - span);
    group.view = { from: from, to: from + span };
    group.charts.forEach(function (chart) { draw(chart, group.view); });
    group.listeners.forEach(function (listener) { listener(); });
  }
  function zoom(group, factor, at) {
    var view = group.view, middle = at === undefined ? (view.from + view.to) / 2 : at;
    show(group, middle - (middle - view.from) / factor, middle + (view.to - middle) / factor);
  }

  // A drag over a chart selects a time; the wheel with Ctrl zooms where the mouse is.
  function follow(chart, group) {
    var start = null, selection = make("rect", { "class": "selection", y: 0, height: chart.viewBox.baseVal.height });
    chart.appendChild(selection);
    function place(event) {
      var box = chart.getBoundingClientRect();
      var x = (event.clientX - box.left) / box.width * chart.viewBox.baseVal.width;
      return Math.min(Math.max(x, +chart.dataset.left), +chart.dataset.right);
    }
    function time(x) {
      var left = +chart.dataset.left, right = +chart.dataset.right;
      return group.view.from + (x - left) / (right - left) * (group.view.to - group.view.from);
    }
    chart.addEventListener("mousedown", function (event) {
      if (event.button === 0) { start = place(event); event.preventDefault(); }
    });
    chart.addEventListener("dragstart", function (event) { event.preventDefault(); });
    window.addEventListener("mousemove", function (event) {
      if (start === null) { return; }
      var now = place(event);
      selection.setAttribute("x", Math.min(start, now));
      selection.setAttribute("width", Math.abs(now - start));
      selection.style.visibility = Math.abs(now - start) < LEAST_DRAG ? "hidden" : "visible";
    });
    window.addEventListener("mouseup", function (event) {
      if (start === null) { return; }
      var from = Math.min(start, place(event)), to = Math.max(start, place(event));
      start = null;
      selection.style.visibility = "hidden";
      if (to - from >= LEAST_DRAG) {
        show(group, time(from), time(to));
        // The click that ends a drag must not follow a link below the mouse.
        chart.addEventListener("click", function (click) { click.preventDefault(); click.stopPropagation(); }, { capture: true, once: true });
        setTimeout(function () { chart.dispatchEvent(new Event("click")); }, 0);
      }
    });
    chart.addEventListener("wheel", function (event) {
      if (!event.ctrlKey) { return; }
      event.preventDefault();
      zoom(group, event.deltaY < 0 ? 1.5 : 1 / 1.5, time(place(event)));
    }, { passive: false });
    chart.addEventListener("dblclick", function () { show(group, group.begin, group.end); });
  }

  Array.prototype.forEach.call(document.querySelectorAll("svg.chart[data-end]"), function (chart) {
    var key = chart.dataset.begin + " " + chart.dataset.end;
    var begin = +chart.dataset.begin, end = +chart.dataset.end;
    var group = groups[key] = groups[key] || { begin: begin, end: end, view: { from: begin, to: end }, charts: [], listeners: [] };
    group.charts.push(chart);
    holdNames(chart);
    follow(chart, group);
  });

  // The buttons are for the charts of the whole run.
  var bar = document.getElementById("zoom");
  if (bar) {
    var group = groups[bar.dataset.begin + " " + bar.dataset.end], text = bar.querySelector("[role=status]");
    if (!group) { bar.hidden = true; return; }
    var actions = {
      "in": function () { zoom(group, 2); },
      out: function () { zoom(group, 0.5); },
      earlier: function () { var half = (group.view.to - group.view.from) / 2; show(group, group.view.from - half, group.view.to - half); },
      later: function () { var half = (group.view.to - group.view.from) / 2; show(group, group.view.from + half, group.view.to + half); },
      whole: function () { show(group, group.begin, group.end); }
    };
    bar.addEventListener("click", function (event) {
      var name = event.target.dataset.zoom;
      if (name) { actions[name](); }
    });
    group.listeners.push(function () {
      text.textContent = group.view.from.toFixed(3) + " s to " + group.view.to.toFixed(3) + " s";
    });
    // Links to a time: "#time=12.5" shows a second before and after it.
    var wanted = function () {
      var found = /^#time=([\d.]+)$/.exec(location.hash);
      if (found) { show(group, +found[1] - 1, +found[1] + 1); document.getElementById("partitions").scrollIntoView(); }
    };
    window.addEventListener("hashchange", wanted);
    wanted();
  }
})();
