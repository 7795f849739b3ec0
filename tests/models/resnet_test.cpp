#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "models/registry.h"
#include "runtime/core/error.h"
#include "runtime/ir/builder/builder.h"
#include "runtime/plan/build_model.h"

namespace dstrain {
namespace {

ModelConfig resnet_of(int64_t depth) {
  ModelConfig model(*model_registry().find("resnet"));
  model.set("depth", depth);
  return model;
}

Program program_of(const ModelConfig& model) {
  Program program;
  Builder builder(program, {.batch = 2, .training = true});
  build_model(builder, model);
  return program;
}

std::map<std::string, const Parameter*> parameters_of(const Program& program) {
  std::map<std::string, const Parameter*> parameters;
  for (const Parameter& p : program.parameters) parameters[p.name] = &p;
  return parameters;
}

}  // namespace

TEST_CASE("resnet: torchvision's models have their numbers of parameters") {
  for (const auto& [depth, parameters] : std::map<int64_t, double>{{18, 11'689'512},
                                                                   {34, 21'797'672},
                                                                   {50, 25'557'032},
                                                                   {101, 44'549'160},
                                                                   {152, 60'192'808}}) {
    CAPTURE(depth);
    CHECK(resnet_of(depth).measures().parameters == parameters);
  }
}

TEST_CASE("resnet: tensors have torchvision's names and begin as its own do") {
  ModelConfig model = resnet_of(18);
  model.set("num_classes", int64_t{10});
  model.set("image_size", int64_t{32});
  const Program program = program_of(model);
  const auto parameters = parameters_of(program);
  CHECK(parameters.size() == 62);
  CHECK(parameters.at("conv1.weight")->shape == Shape{64, 3, 7, 7});
  CHECK(parameters.at("layer1.0.conv1.weight")->shape == Shape{64, 64, 3, 3});
  CHECK(parameters.at("layer2.0.downsample.0.weight")->shape == Shape{128, 64, 1, 1});
  CHECK(parameters.at("layer4.1.bn2.bias")->shape == Shape{512});
  CHECK(parameters.at("fc.weight")->shape == Shape{10, 512});
  CHECK(!parameters.contains("layer1.0.downsample.0.weight"));
  // kaiming_normal_ by the fan out: sqrt(2 / (64 * 9)).
  CHECK(parameters.at("layer1.0.conv1.weight")->init == Init::normal);
  CHECK(parameters.at("layer1.0.conv1.weight")->init_scale == Approx(0.0589256));
  CHECK(parameters.at("bn1.weight")->init == Init::ones);
  std::set<std::string> buffers;
  for (const RegisteredBuffer& buffer : program.registered) buffers.insert(buffer.name);
  CHECK(buffers.size() == 40);
  CHECK(buffers.contains("layer2.0.downsample.1.running_var"));
  std::set<std::string> counts;
  for (const KeptTensor& kept : model.family().kept_tensors(model)) {
    CHECK(kept.dtype == "I64");
    counts.insert(kept.name);
  }
  CHECK(counts.size() == 20);
  CHECK(counts.contains("bn1.num_batches_tracked"));
  const ModelConfig deep = resnet_of(50);
  const Program bottleneck = program_of(deep);
  CHECK(parameters_of(bottleneck).at("layer1.0.downsample.0.weight")->shape ==
        Shape{256, 64, 1, 1});
  CHECK(parameters_of(bottleneck).at("layer4.2.conv3.weight")->shape == Shape{2048, 512, 1, 1});
}

TEST_CASE("resnet: residual blocks are the layers, and small images have a stem of their own") {
  ModelConfig model = resnet_of(34);
  model.set("stem", "cifar");
  model.set("image_size", int64_t{32});
  CHECK(model.layers() == 16);
  const Program program = program_of(model);
  CHECK(parameters_of(program).at("conv1.weight")->shape == Shape{64, 3, 3, 3});
  int64_t numbered = 0;
  for (const Layer& layer : program.layers)
    if (layer.number >= 0) CHECK(layer.number == numbered++);
  CHECK(numbered == 16);
  CHECK(program.layers.size() == 18);
}

TEST_CASE("resnet: other depths and channels are errors") {
  const auto& problem = resnet_of(18).family().problem;
  CHECK(!problem(resnet_of(152)));
  CHECK(problem(resnet_of(20))->message ==
        "20: there are ResNets of depth 18, 34, 50, 101 and 152");
  ModelConfig model = resnet_of(18);
  model.set("channels", int64_t{2});
  CHECK(problem(model)->message == "2: images have 1 or 3 channels");
}

}  // namespace dstrain
