#include "runtime/config/solve/data/solve_images.h"

#include <fmt/format.h>

#include "runtime/config/family/image_inputs.h"
#include "runtime/config/text.h"

namespace dstrain {
namespace {

void check_channels(std::string_view key, const std::vector<double>& values, int64_t channels,
                    Diagnostics& diagnostics) {
  const auto count = static_cast<int64_t>(values.size());
  if (count == 1 || count == channels) return;
  diagnostics.error(key, fmt::format("has {}, and the images of the model have {}: give a number "
                                     "for all channels, or one for each",
                                     counted(count, "number"), counted(channels, "channel")));
}

}  // namespace

void solve_images(Job& job, Values& v, Diagnostics& diagnostics) {
  ImageConfig& p = job.data.images;
  p.mean = v.reals("dstrain.data.mean");
  p.std = v.reals("dstrain.data.std");
  p.crop = v.integer("dstrain.data.crop");
  p.flip = v.flag("dstrain.data.flip");
  constexpr std::string_view size_key = "dstrain.data.size";
  if (v.given(size_key)) p.size = v.integer(size_key, 0, "");
  const ImageInputs inputs = image_inputs(job.model);
  if (!inputs.problem.empty())
    return diagnostics.error("dstrain.data.format", "\"images\": " + inputs.problem);
  check_channels("dstrain.data.mean", p.mean, inputs.channels, diagnostics);
  check_channels("dstrain.data.std", p.std, inputs.channels, diagnostics);
  if (p.size > 0 && (p.size != inputs.height || p.size != inputs.width))
    diagnostics.error(size_key,
                      fmt::format("{0} makes images of {0} x {0}, and those of the {1} "
                                  "have {2} x {3} (height x width)",
                                  p.size, job.model.family().title, inputs.height, inputs.width));
  if (p.crop >= inputs.height || p.crop >= inputs.width)
    diagnostics.error("dstrain.data.crop",
                      fmt::format("{} black pixels may be all that is left of images of {} x {}: "
                                  "use less",
                                  p.crop, inputs.height, inputs.width));
}

}  // namespace dstrain
