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

  // One cursor for all charts, so that events at the same time can be compared.
  var charts = Array.prototype.slice.call(document.querySelectorAll("svg.chart[data-end]"));
  function move(share) {
    charts.forEach(function (chart) {
      var left = +chart.dataset.left, right = +chart.dataset.right;
      var x = left + share * (right - left);
      var line = chart.querySelector(".cursor"), text = chart.querySelector(".cursor-time");
      var visible = share >= 0 && share <= 1 ? "visible" : "hidden";
      line.setAttribute("x1", x); line.setAttribute("x2", x);
      line.style.visibility = visible; text.style.visibility = visible;
      text.textContent = (share * +chart.dataset.end).toFixed(3) + " s";
      text.setAttribute("x", share > 0.9 ? x - 5 : x + 5);
      text.setAttribute("text-anchor", share > 0.9 ? "end" : "start");
    });
  }
  charts.forEach(function (chart) {
    chart.addEventListener("mousemove", function (event) {
      var box = chart.getBoundingClientRect();
      var x = (event.clientX - box.left) / box.width * chart.viewBox.baseVal.width;
      move((x - +chart.dataset.left) / (+chart.dataset.right - +chart.dataset.left));
    });
    chart.addEventListener("mouseleave", function () { move(-1); });
  });
})();
