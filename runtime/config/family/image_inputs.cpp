#include "runtime/config/family/image_inputs.h"

#include <fmt/ranges.h>

#include <vector>

namespace dstrain {

ImageInputs image_inputs(const ModelConfig& model) {
  ImageInputs found;
  std::vector<std::string> list;
  for (const ModelInput& input : model.family().inputs) {
    const std::vector<int64_t> sizes = model.sizes_of(input);
    list.push_back(
        fmt::format("{} {} ({})", input.name, name_of(input.dtype), fmt::join(sizes, ", ")));
    if (input.role != InputRole::array || model.is_whole(input.name)) continue;
    if (input.dtype == DType::f32 && sizes.size() == 3 && (sizes[0] == 1 || sizes[0] == 3)) {
      found.images = &input;
      found.channels = sizes[0], found.height = sizes[1], found.width = sizes[2];
    }
    if (input.dtype == DType::i32 && sizes.empty()) found.labels = &input;
  }
  if (found.images == nullptr || found.labels == nullptr || list.size() != 2)
    found.problem = fmt::format(
        "images give an input of fractions of (samples, 1 or 3 channels, height, width) and one "
        "of integers of (samples), and no others; of a sample the {} reads {}",
        model.family().title, fmt::join(list, ", "));
  return found;
}

}  // namespace dstrain
