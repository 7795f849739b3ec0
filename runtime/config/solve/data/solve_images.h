// How samples are made of images, by the keys of dstrain.data.
#pragma once

#include <string_view>

#include "runtime/config/job.h"
#include "runtime/config/solve/diagnostics.h"
#include "runtime/config/solve/values.h"

namespace dstrain {

// The keys of data of images alone.
inline constexpr std::string_view kOfImages[] = {"dstrain.data.mean", "dstrain.data.std",
                                                 "dstrain.data.crop", "dstrain.data.flip",
                                                 "dstrain.data.size"};

// Fills in how samples are made of images. Reports a model whose inputs images do not give, and values that do not fit
// its images.
void solve_images(Job& job, Values& v, Diagnostics& diagnostics);

}  // namespace dstrain
