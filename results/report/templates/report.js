(function () {
  "use strict";
  var root = document.documentElement;
  var button = document.getElementById("theme");
  function show(theme) {
    root.setAttribute("data-theme", theme);
    if (button) { button.textContent = theme === "dark" ? "Light" : "Dark"; }
  }
  var wanted = /theme=(dark|light)/.exec(location.hash);
  var dark = window.matchMedia && window.matchMedia("(prefers-color-scheme: dark)").matches;
  show(wanted ? wanted[1] : dark ? "dark" : "light");
  if (button) {
    button.addEventListener("click", function () {
      show(root.getAttribute("data-theme") === "dark" ? "light" : "dark");
    });
  }

  // Marks are hidden by default: the other entries tell the story.
  document.querySelectorAll(".filters input").forEach(function (box) {
    function apply() {
      document.querySelectorAll('.story > li[data-kind="' + box.value + '"]').forEach(function (item) {
        item.hidden = !box.checked;
        item.style.display = box.checked ? "" : "none";
      });
    }
    box.checked = box.value !== "mark";
    box.addEventListener("change", apply);
    apply();
  });

  // A link must show its target, which may be folded or filtered out.
  function reveal() {
    var target = /^#(anomaly|fault|op)-/.test(location.hash) && document.getElementById(location.hash.slice(1));
    for (var outer = target; outer; outer = outer.parentElement) {
      if (outer.tagName === "DETAILS") { outer.open = true; }
    }
    if (target) { target.scrollIntoView(); }
  }
  window.addEventListener("hashchange", reveal);
  reveal();

  // Where a chart is wider than the page, the decisive moment comes into view.
  document.querySelectorAll("#counterexample .scroll").forEach(function (box) {
    var line = box.querySelector("line.loss"), chart = box.querySelector("svg");
    if (line && chart) {
      var x = +line.getAttribute("x1") / chart.viewBox.baseVal.width * chart.getBoundingClientRect().width;
      box.scrollLeft = x - box.clientWidth * 0.7;
    }
  });

  // One cursor for all charts, so that events at the same time can be compared.
  var charts = Array.prototype.slice.call(document.querySelectorAll("svg.chart[data-end]"));
  function move(share, source) {
    charts.forEach(function (chart) {
      // A chart of a part of the run has an axis of its own.
      if (chart.dataset.begin !== source.dataset.begin || chart.dataset.end !== source.dataset.end) { return; }
      var left = +chart.dataset.left, right = +chart.dataset.right;
      var x = left + share * (right - left);
      var line = chart.querySelector(".cursor"), text = chart.querySelector(".cursor-time");
      var visible = share >= 0 && share <= 1 ? "visible" : "hidden";
      line.setAttribute("x1", x); line.setAttribute("x2", x);
      line.style.visibility = visible; text.style.visibility = visible;
      var begin = +chart.dataset.begin;
      text.textContent = (begin + share * (+chart.dataset.end - begin)).toFixed(3) + " s";
      text.setAttribute("x", share > 0.9 ? x - 5 : x + 5);
      text.setAttribute("text-anchor", share > 0.9 ? "end" : "start");
    });
  }
  charts.forEach(function (chart) {
    chart.addEventListener("mousemove", function (event) {
      var box = chart.getBoundingClientRect();
      var x = (event.clientX - box.left) / box.width * chart.viewBox.baseVal.width;
      move((x - +chart.dataset.left) / (+chart.dataset.right - +chart.dataset.left), chart);
    });
    chart.addEventListener("mouseleave", function () { move(-1, chart); });
  });
})();
