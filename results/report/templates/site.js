(function () {
  "use strict";
  var data = JSON.parse(document.getElementById("data").textContent);
  var all = function (selector) { return Array.prototype.slice.call(document.querySelectorAll(selector)); };
  var items = all("tr.item"), filters = all("select[data-filter]");
  var search = document.getElementById("search"), found = document.getElementById("found");
  var from = document.getElementById("from"), to = document.getElementById("to");

  // Filters and search: what is not wanted is hidden, and the address keeps the choice.
  function apply() {
    var words = search.value.toLowerCase().split(/\s+/).filter(Boolean), shown = 0;
    items.forEach(function (item) {
      var fits = words.every(function (word) { return item.dataset.words.indexOf(word) >= 0; }) &&
        filters.every(function (filter) {
          return !filter.value || item.dataset[filter.dataset.filter].split(" ").indexOf(filter.value) >= 0;
        });
      // Days are ISO dates, which compare as text. What has no date does not fit a choice of dates.
      fits = fits && (!from.value || item.dataset.day >= from.value) &&
        (!to.value || (item.dataset.day !== "" && item.dataset.day <= to.value));
      item.hidden = !fits;
      shown += fits ? 1 : 0;
    });
    found.textContent = shown === items.length ? "" : shown + " of " + items.length + " match";
  }
  search.addEventListener("input", apply);
  filters.forEach(function (filter) { filter.addEventListener("change", apply); });
  [from, to].forEach(function (day) { day.addEventListener("input", apply); });
  document.querySelector("form.search").addEventListener("submit", function (event) { event.preventDefault(); });
  document.querySelector("form.search").addEventListener("reset", function () { setTimeout(apply, 0); });
  apply();

  // Two runs side by side.
  var boxes = all("#runs input[type=checkbox]"), button = document.getElementById("compare");
  var pair = document.getElementById("pair"), chosenText = document.getElementById("chosen");
  function chosen() {
    return boxes.filter(function (box) { return box.checked; }).map(function (box) { return box.closest("tr").dataset.id; });
  }
  function choose() {
    boxes.forEach(function (box) { box.closest("tr").classList.toggle("chosen", box.checked); });
    var ids = chosen();
    button.disabled = ids.length !== 2;
    chosenText.textContent = ids.length === 2 ? ids.join(" and ") : "Choose two runs by their check boxes (" + ids.length + " chosen).";
  }
  boxes.forEach(function (box) { box.addEventListener("change", choose); });
  if (button) {
    button.addEventListener("click", function () { location.hash = "pair=" + chosen().map(encodeURIComponent).join("&"); show(); });
    choose();
  }

  function cell(row, content, name) {
    var made = document.createElement(name || "td");
    if (Array.isArray(content)) {
      var list = document.createElement("ul");
      content.forEach(function (text) { var item = document.createElement("li"); item.textContent = text; list.appendChild(item); });
      if (content.length) { made.appendChild(list); } else { made.textContent = "none"; }
    } else { made.textContent = content; }
    row.appendChild(made);
    return made;
  }
  function line(table, name, one, two) {
    var row = document.createElement("tr");
    if (JSON.stringify(one) !== JSON.stringify(two)) { row.className = "differs"; }
    cell(row, name); cell(row, one); cell(row, two);
    table.appendChild(row);
  }
  function heading(table, text) {
    var row = document.createElement("tr"), made = cell(row, text, "th");
    made.colSpan = 3; made.scope = "colgroup";
    table.appendChild(row);
  }
  function keys(one, two) { return Object.keys(one).concat(Object.keys(two).filter(function (key) { return !(key in one); })); }
  function milliseconds(run, kind, quantile) {
    return kind in run.latency ? run.latency[kind][quantile].toFixed(1) + " ms" : "–";
  }
  function show() {
    var wanted = /^#pair=([^&]+)&(.+)$/.exec(location.hash);
    if (!wanted) { return; }
    var ids = [decodeURIComponent(wanted[1]), decodeURIComponent(wanted[2])], one = data[ids[0]], two = data[ids[1]];
    if (!one || !two) { return; }
    var table = pair.querySelector("table"), head = document.createElement("tr");
    table.textContent = "";
    cell(head, "", "td");
    [one, two].forEach(function (run, index) {
      var made = cell(head, "", "th"), link = document.createElement(run.report ? "a" : "span");
      made.scope = "col";
      if (run.report) { link.href = run.report.split("/").map(encodeURIComponent).join("/"); }
      link.textContent = ids[index];
      made.appendChild(link);
    });
    table.appendChild(head);
    heading(table, "Verdict");
    line(table, "verdict", one.verdict, two.verdict);
    line(table, "lost without an excuse", String(one.lost), String(two.lost));
    line(table, "reasons", one.reasons, two.reasons);
    line(table, "anomalies", one.anomalies, two.anomalies);
    heading(table, "Latency of operations that were ok");
    keys(one.latency, two.latency).forEach(function (kind) {
      ["p50", "p95", "p99", "max"].forEach(function (quantile) {
        line(table, kind + " " + quantile, milliseconds(one, kind, quantile), milliseconds(two, kind, quantile));
      });
    });
    heading(table, "Schedule");
    line(table, "faults", one.schedule, two.schedule);
    heading(table, "Configuration");
    keys(one.config, two.config).forEach(function (key) {
      line(table, key, key in one.config ? one.config[key] : "–", key in two.config ? two.config[key] : "–");
    });
    pair.hidden = false;
    pair.scrollIntoView();
    pair.focus({ preventScroll: true });
  }
  window.addEventListener("hashchange", show);
  show();
})();
