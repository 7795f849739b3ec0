#include "models/resnet/resnet.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "models/exported/lower/lower_graph.h"
#include "models/measure.h"
#include "models/resnet/resnet_graph.h"
#include "models/sizes.h"
#include "runtime/ir/builder/builder.h"

namespace dstrain {
namespace {

// The models of the paper, by their numbers of layers with weights.
struct Depth {
  int64_t depth;
  std::array<int64_t, 4> blocks;
  bool bottleneck;
};

constexpr Depth kDepths[] = {{18, {2, 2, 2, 2}, false},
                             {34, {3, 4, 6, 3}, false},
                             {50, {3, 4, 6, 3}, true},
                             {101, {3, 4, 23, 3}, true},
                             {152, {3, 8, 36, 3}, true}};

const Depth* depth_of(const ModelConfig& c) {
  const auto* const found = std::ranges::find(kDepths, c.integer("depth"), &Depth::depth);
  return found == std::end(kDepths) ? nullptr : found;
}

residual::Sizes sizes_of_resnet(const ModelConfig& c) {
  const Depth* const depth = depth_of(c);
  const Depth& of =
      depth == nullptr ? kDepths[0] : *depth;  // a configuration with an error goes on
  return {.blocks = of.blocks,
          .bottleneck = of.bottleneck,
          .cifar_stem = c.text("stem") == "cifar",
          .width = c.integer("width"),
          .channels = c.integer("channels"),
          .image_size = c.integer("image_size"),
          .classes = c.integer("num_classes")};
}

int64_t resnet_layers(const ModelConfig& c) {
  return residual::blocks_of(sizes_of_resnet(c));
}

std::optional<KeyProblem> resnet_problem(const ModelConfig& c) {
  if (depth_of(c) == nullptr)
    return KeyProblem{
        {"dstrain.model.depth"},
        fmt::format("{}: there are ResNets of depth 18, 34, 50, 101 and 152", c.integer("depth"))};
  if (c.integer("channels") != 1 && c.integer("channels") != 3)
    return KeyProblem{{"dstrain.model.channels"},
                      fmt::format("{}: images have 1 or 3 channels", c.integer("channels"))};
  return std::nullopt;
}

void build_resnet(Builder& b, const ModelConfig& c) {
  const float smoothing = b.options().training ? b.options().label_smoothing : 0;
  residual::GraphWriter writer =
      residual::resnet_graph(sizes_of_resnet(c), b.options().batch, smoothing);
  exported::lower_graph(b, {.graph = writer.graph(), .constants = {}, .left = {}}, writer.facts());
}

// PyTorch's counts of batches, which it reads where a batch norm has no momentum alone.
std::vector<KeptTensor> batch_counts(const ModelConfig& c) {
  std::vector<KeptTensor> counts;
  const residual::GraphWriter writer = residual::resnet_graph(sizes_of_resnet(c), 1, 0);
  constexpr std::string_view mean = "running_mean";
  for (const exported::GraphInput& input : writer.graph().inputs)
    if (input.name.ends_with(mean))
      counts.push_back(
          {.name = input.name.substr(0, input.name.size() - mean.size()) + "num_batches_tracked",
           .dtype = "I64",
           .shape = {},
           .bytes = std::string(8, '\0')});
  return counts;
}

ForeignNames resnet_names() {
  return {.ignored = {"*.num_batches_tracked"}};
}

}  // namespace

const ModelFamily& resnet() {
  using models::size_key;
  constexpr auto change = FactChange::impossible;
  static const ModelFamily family{
      .type = "resnet",
      .title = "ResNet",
      .keys = {{size_key("dstrain.model.depth", "18",
                         "layers with weights: 18, 34, or with bottleneck blocks 50, 101, 152"),
                change},
               {size_key("dstrain.model.num_classes", "1000", ""), change},
               {size_key("dstrain.model.image_size", "224", "pixels of a side", 4096),
                FactChange::forbidden},
               {{.key = "dstrain.model.stem",
                 .type = Type::choice,
                 .fallback = "\"imagenet\"",
                 .note = "the first convolution: of 7 x 7 with stride 2 and a pool (imagenet), or "
                         "for small images of 3 x 3 with stride 1 and no pool (cifar)",
                 .choices = "imagenet|cifar"},
                change},
               {size_key("dstrain.model.width", "64",
                         "channels of the first stage; the others have 2, 4 and 8 times as many",
                         65536),
                change},
               {size_key("dstrain.model.channels", "3", "of images: 1 or 3", 3), change}},
      .inputs = {{"images", InputRole::array, DType::f32, {"channels", "image_size", "image_size"}},
                 {"labels", InputRole::array, DType::i32, {}, "num_classes"}},
      .layers_key = "depth",
      .width_key = "width",
      .count_layers = resnet_layers,
      .problem = resnet_problem,
      .build = build_resnet,
      .measure = measure_all_layers,
      .usually_images = true,
      .undivided = true,
      .names_of_weights = resnet_names,
      .kept_tensors = batch_counts};
  return family;
}

}  // namespace dstrain
