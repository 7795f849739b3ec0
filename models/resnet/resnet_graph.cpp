#include "models/resnet/resnet_graph.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>
#include <utility>

namespace dstrain::residual {
namespace {

constexpr double kMomentum = 0.1, kEpsilon = 1e-5;  // PyTorch's of batch norm

class ResnetWriter {
 public:
  ResnetWriter(const Sizes& sizes, int64_t batch, float label_smoothing)
      : sizes_(sizes), batch_(batch), label_smoothing_(label_smoothing) {}

  GraphWriter take() && {
    const TensorRef images = g_.input(
        "images", ScalarType::f32, {batch_, sizes_.channels, sizes_.image_size, sizes_.image_size});
    const TensorRef labels = g_.input("labels", ScalarType::i64, {batch_});
    TensorRef x = stem(images);
    for (int stage = 0; stage < 4; ++stage)
      for (int64_t i = 0; i < sizes_.blocks[static_cast<size_t>(stage)]; ++i)
        x = block(fmt::format("layer{}.{}", stage + 1, i), x, sizes_.width << stage,
                  stage > 0 && i == 0 ? 2 : 1);
    head(x, labels);
    return std::move(g_);
  }

 private:
  TensorRef stem(TensorRef images) {
    const int64_t width = sizes_.width;
    if (sizes_.cifar_stem)
      return relu("relu", norm("bn1", convolution("conv1", images, width, 3, 1)));
    const TensorRef x = relu("relu", norm("bn1", convolution("conv1", images, width, 7, 2)));
    g_.module("maxpool");
    return g_.add("aten.max_pool2d.default",
                  {{"self", x},
                   {"kernel_size", whole_numbers({3, 3})},
                   {"stride", whole_numbers({2, 2})},
                   {"padding", whole_numbers({1, 1})},
                   {"dilation", whole_numbers({1, 1})},
                   {"ceil_mode", false}},
                  {batch_, width, (g_.size(x, 2) + 1) / 2, (g_.size(x, 3) + 1) / 2});
  }

  TensorRef block(const std::string& name, TensorRef x, int64_t width, int64_t stride) {
    const int64_t outputs = sizes_.bottleneck ? 4 * width : width;
    TensorRef y;
    if (sizes_.bottleneck) {
      // The stride is that of the second convolution, as torchvision has it.
      y = relu(name + ".relu", norm(name + ".bn1", convolution(name + ".conv1", x, width, 1, 1)));
      y = relu(name + ".relu",
               norm(name + ".bn2", convolution(name + ".conv2", y, width, 3, stride)));
      y = norm(name + ".bn3", convolution(name + ".conv3", y, outputs, 1, 1));
    } else {
      y = relu(name + ".relu",
               norm(name + ".bn1", convolution(name + ".conv1", x, width, 3, stride)));
      y = norm(name + ".bn2", convolution(name + ".conv2", y, outputs, 3, 1));
    }
    TensorRef passed = x;
    if (stride != 1 || g_.size(x, 1) != outputs)
      passed =
          norm(name + ".downsample.1", convolution(name + ".downsample.0", x, outputs, 1, stride));
    g_.module(name);
    const TensorRef sum =
        g_.add("aten.add.Tensor", {{"self", y}, {"other", passed}, {"alpha", exported::Size(1)}},
               g_.sizes(y));
    numbered_.push_back(name);
    return relu(name + ".relu", sum);
  }

  void head(TensorRef x, TensorRef labels) {
    g_.facts().numbered = numbered_;
    const int64_t inputs = g_.size(x, 1), classes = sizes_.classes;
    g_.module("avgpool");
    const TensorRef mean =
        g_.add("aten.mean.dim", {{"self", x}, {"dim", whole_numbers({2, 3})}, {"keepdim", false}},
               {batch_, inputs});
    g_.module("fc");
    const auto bound = static_cast<float>(1 / std::sqrt(static_cast<double>(inputs)));
    const TensorRef weight = g_.parameter("fc.weight", {classes, inputs}, Init::uniform, bound),
                    bias = g_.parameter("fc.bias", {classes}, Init::uniform, bound);
    const TensorRef logits =
        g_.add("aten.linear.default", {{"input", mean}, {"weight", weight}, {"bias", bias}},
               {batch_, classes});
    g_.module("loss");
    const TensorRef loss = g_.add("aten.cross_entropy_loss.default",
                                  {{"self", logits},
                                   {"target", labels},
                                   {"weight", std::monostate{}},
                                   {"reduction", exported::Size(1)},
                                   {"ignore_index", exported::Size(-100)},
                                   {"label_smoothing", double{label_smoothing_}}},
                                  {});
    const TensorRef best = g_.add(
        "aten.argmax.default", {{"self", logits}, {"dim", exported::Size(1)}, {"keepdim", false}},
        {batch_}, ScalarType::i64);
    const TensorRef right = g_.add("aten.eq.Tensor", {{"self", best}, {"other", labels}}, {batch_},
                                   ScalarType::boolean);
    const TensorRef counted =
        g_.add("aten._to_copy.default", {{"self", right}, {"dtype", ScalarType::f32}}, {batch_});
    g_.output("loss", loss);
    g_.output("accuracy", g_.add("aten.mean.default", {{"self", counted}}, {}));
  }

  // A square kernel without bias, padded so that with stride 1 no size changes; as torchvision begins it, by the fan out of
  // kaiming_normal_.
  TensorRef convolution(const std::string& name, TensorRef x, int64_t outputs, int64_t kernel,
                        int64_t stride) {
    g_.module(name);
    const int64_t inputs = g_.size(x, 1), padding = kernel / 2;
    const auto deviation =
        static_cast<float>(std::sqrt(2.0 / static_cast<double>(outputs * kernel * kernel)));
    const TensorRef weight =
        g_.parameter(name + ".weight", {outputs, inputs, kernel, kernel}, Init::normal, deviation);
    const auto size = [&](size_t dimension) {
      return (g_.size(x, dimension) + 2 * padding - kernel) / stride + 1;
    };
    return g_.add("aten.conv2d.default",
                  {{"input", x},
                   {"weight", weight},
                   {"bias", std::monostate{}},
                   {"stride", whole_numbers({stride, stride})},
                   {"padding", whole_numbers({padding, padding})},
                   {"dilation", whole_numbers({1, 1})},
                   {"groups", exported::Size(1)}},
                  {batch_, outputs, size(2), size(3)});
  }

  TensorRef norm(const std::string& name, TensorRef x) {
    g_.module(name);
    const int64_t channels = g_.size(x, 1);
    const TensorRef weight = g_.parameter(name + ".weight", {channels}, Init::ones),
                    bias = g_.parameter(name + ".bias", {channels}, Init::zeros),
                    mean = g_.running(name + ".running_mean", channels, Init::zeros),
                    variance = g_.running(name + ".running_var", channels, Init::ones);
    return g_.add("aten._native_batch_norm_legit_functional.default",
                  {{"input", x},
                   {"weight", weight},
                   {"bias", bias},
                   {"running_mean", mean},
                   {"running_var", variance},
                   {"training", true},
                   {"momentum", kMomentum},
                   {"eps", kEpsilon}},
                  g_.sizes(x));
  }

  TensorRef relu(const std::string& name, TensorRef x) {
    g_.module(name);
    return g_.add("aten.relu.default", {{"self", x}}, g_.sizes(x));
  }

  const Sizes& sizes_;
  int64_t batch_;
  float label_smoothing_;
  GraphWriter g_;
  std::vector<std::string> numbered_;
};

}  // namespace

int64_t blocks_of(const Sizes& sizes) {
  return std::accumulate(sizes.blocks.begin(), sizes.blocks.end(), int64_t{0});
}

GraphWriter resnet_graph(const Sizes& sizes, int64_t batch, float label_smoothing) {
  return ResnetWriter(sizes, batch, label_smoothing).take();
}

}  // namespace dstrain::residual
