// Pictures of one verdict.
"use strict";

function drawPictures(frame, data, i) {
}
