// Pictures of a pipeline's step: a row for each stage, time from left to right.
#pragma once

#include <string>

#include "runtime/plan/pipeline/simulate.h"

namespace dstrain {

// Returns the simulated step as text: the title, the heading, a legend, and a row for each stage of at most
// `width` characters. A task is its phase, F, B or W, in lower case for chunks after the first, and its
// micro-batch where that fits. A task that is shorter than half a character may be left out. Throws
// InternalError if `times` has an error, or `width` has no room for a row.
std::string timeline_text(const std::string& title, const PipelineOrders& orders,
                          const PipelineTimes& times, size_t width);

// Returns the simulated step as an SVG image that needs no other file. Each task shows its phase, micro-batch,
// chunk and times under the pointer. Throws InternalError if `times` has an error.
std::string timeline_svg(const std::string& title, const PipelineOrders& orders,
                         const PipelineTimes& times);

// Returns the bubble and the micro-batches in flight of each stage, "+" between its chunks: "bubble 27.3 %, in
// flight 4 3 2 1". Throws InternalError if `times` has an error.
std::string timeline_heading(const PipelineOrders& orders, const PipelineTimes& times);

}  // namespace dstrain
