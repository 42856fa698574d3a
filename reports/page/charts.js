// What Chart.js draws of all verdicts.
"use strict";

function drawCharts(data) {
}
