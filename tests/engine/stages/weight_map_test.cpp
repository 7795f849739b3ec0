// A model whose weight files have other names than its parameters, transposed and joined tensors. mpirun starts this
// program.
#include <fmt/core.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "models/measure.h"
#include "models/sizes.h"
#include "runtime/comm/world.h"
#include "runtime/engine/run/run.h"
#include "runtime/engine/run/trainer.h"
#include "runtime/ir/builder/builder.h"
#include "runtime/plan/build_model.h"
#include "runtime/storage/weights.h"
#include "tests/engine/test_rank.h"
#include "tests/support/temp_dir.h"

namespace {

// How often this process has read each byte of a file, while it counts.
std::vector<double>* counted_bytes = nullptr;

}  // namespace

// Takes the place of the C library's function in this program.
extern "C" ssize_t pread(int file, void* data, size_t bytes, off_t offset) {
  const ssize_t read = ::syscall(SYS_pread64, file, data, bytes, offset);
  for (ssize_t i = 0; counted_bytes && i < read; ++i)
    ++counted_bytes->at(static_cast<size_t>(offset + i));
  return read;
}

namespace dstrain {
namespace {

constexpr int64_t kWidth = 6, kLength = 4, kIds = 11;

// Attention and a hidden product in each layer.
void build_small(Builder& b, const ModelConfig& c) {
  b.unit("embedding");
  const BufferId table = b.vocabulary("wte.weight", {c.vocabulary(), kWidth}, Init::normal, 0.2f);
  BufferId x = b.embed(b.input("ids", InputRole::token_ids, DType::i32, {c.context()}), table,
                       kNone, kLength);
  for (int64_t i = 0; i < c.layers(); ++i) {
    const std::string name = b.layer("h", i);
    const auto product = [&](const std::string& of, BufferId in, Shape shape,
                             Activation activation) {
      const BufferId bias =
          b.parameter(fmt::format("{}.{}.bias", name, of), {shape[0]}, Init::uniform, 0.1f);
      return b.linear(in,
                      b.parameter(fmt::format("{}.{}.weight", name, of), shape, Init::normal, 0.2f),
                      bias, activation);
    };
    const BufferId qkv = product("qkv", x, {3 * kWidth, kWidth}, Activation::none);
    x = product("up", b.attention(qkv, 2, kLength, 0), {kWidth, kWidth}, Activation::relu);
  }
  b.unit("head");
  const BufferId head = b.vocabulary("head.weight", {c.vocabulary(), kWidth}, Init::normal, 0.2f);
  b.cross_entropy(b.linear(x, head, kNone, Activation::none),
                  b.input("targets", InputRole::labels, DType::i32, {c.context()}), c.vocabulary());
}

// Files have the queries, keys and values of a layer in tensors of their own, and its product transposed.
WeightMap map_of(const ModelConfig& c) {
  WeightMap map{{"wte.weight", {{.tensor = "model.embed_tokens.weight"}}}};
  for (int64_t i = 0; i < c.layers(); ++i) {
    const std::string own = fmt::format("h.{}.", i), file = fmt::format("model.layers.{}.", i);
    for (const char* kind : {"weight", "bias"}) {
      WeightEntry qkv{fmt::format("{}qkv.{}", own, kind), {}};
      for (const char* part : {"q", "k", "v"})
        qkv.parts.push_back(
            {.tensor = fmt::format("{}{}_proj.{}", file, part, kind), .rows = kWidth});
      map.push_back(std::move(qkv));
    }
    map.push_back({own + "up.weight", {{.tensor = file + "c_fc.weight", .transposed = true}}});
  }
  return map;
}

const ModelFamily& plain() {
  using models::size_key;
  static const ModelFamily family{
      .type = "plain",
      .title = "plain model",
      .keys = {{size_key("dstrain.model.depth", "2", "")},
               {size_key("dstrain.model.length", "4", "")},
               {size_key("dstrain.model.tokens", "11", "")}},
      .inputs = {{"ids", InputRole::token_ids, DType::i32, {"length"}, "tokens"},
                 {"targets", InputRole::labels, DType::i32, {"length"}, "tokens"}},
      .layers_key = "depth",
      .width_key = "length",
      .build = build_small,
      .measure = measure_model};
  return family;
}

const ModelFamily& renamed() {
  static const ModelFamily family = [] {
    ModelFamily f = plain();
    f.type = "renamed";
    f.weight_map = map_of;
    return f;
  }();
  return family;
}

// A folder that the ranks of this test share.
std::string folder_of(const std::string& name) {
  return fmt::format("{}/dstrain_weight_map_{}/{}", std::filesystem::temp_directory_path().string(),
                     ::getppid(), name);
}

Job job_on(const ModelFamily& family, int zero_stage, const Communicator& comm) {
  Job job;
  job.model = ModelConfig(family);
  job.batch = {2 * comm.size(), 2, 1};
  job.ranks = comm.size();
  job.zero_stage = zero_stage;
  job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
  job.device = DeviceChoice::cpu;
  return job;
}

// Trains on the ranks of `comm` into the folder `name`, from fresh weights or those of the folder `from`. Returns the
// bytes of model.safetensors.
std::string train_to(const std::string& name, const ModelFamily& family, int zero_stage, int steps,
                     Communicator& comm, const std::string& from = "") {
  Job job = job_on(family, zero_stage, comm);
  job.steps = steps;
  job.output = folder_of(name);
  if (!from.empty()) job.init_weights = folder_of(from) + "/model.safetensors";
  const RandomDataset data(kIds);
  RunContext context{implementations()};
  context.comm = &comm;
  train(job, data, context);
  comm.barrier();
  return bytes_of_file(job.output + "/model.safetensors");
}

// Returns what load_weights reads of a file of the renamed model, by the parameter's name.
std::vector<float> weight_in(const std::string& folder, const ModelFamily& family,
                             const std::string& parameter, const Shape& shape) {
  Program program;
  Builder builder(program, {});
  build_model(builder, ModelConfig(family));
  StateRegister list;
  std::vector<std::vector<float>> values;
  for (const Parameter& p : program.parameters) {
    values.emplace_back(static_cast<size_t>(p.shape.elements()));
    list.push_back({.name = p.name,
                    .global_shape = p.shape,
                    .local = {values.back().data(), {p.shape.elements()}, DType::f32}});
  }
  load_weights(folder + "/model.safetensors",
               mapped(std::move(list), weight_map_of(ModelConfig(family))));
  for (size_t i = 0; i < values.size(); ++i)
    if (program.parameters[i].name == parameter) {
      REQUIRE(program.parameters[i].shape == shape);
      return values[i];
    }
  FAIL("there is no " << parameter);
  return {};
}

}  // namespace

TEST_CASE("all ranks together read each byte of the weights once, at every stage and dtype") {
  const auto comm = make_communicator();
  Communicator& world = *comm;
  train_to("weights", renamed(), 0, 0, world);
  const std::string path = folder_of("weights") + "/model.safetensors";
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path));
  const int64_t head =
      read_safetensors_header(InputFile(path, "the weights file")).tensors.front().begin;
  for (const int stage : {0, 1, 2, 3})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      CAPTURE(stage, name_of(dtype));
      Job job = job_on(renamed(), stage, world);
      job.dtype = job.wire_dtype = dtype;
      job.init_weights = path;
      const RandomDataset data(kIds);
      RunContext context{implementations()};
      context.comm = &world;
      Trainer trainer(job, data, context);
      std::vector<double> mine(static_cast<size_t>(bytes));
      counted_bytes = &mine;
      trainer.load();
      counted_bytes = nullptr;
      std::vector<double> all(mine.size() * static_cast<size_t>(world.size()));
      world
          .all_gather({mine.data(), {bytes}, DType::f64},
                      {all.data(), {bytes * world.size()}, DType::f64})
          .wait();
      std::vector<double> together(static_cast<size_t>(bytes - head));
      for (size_t i = 0; i < all.size(); ++i)
        if (const auto at = static_cast<int64_t>(i) % bytes; at >= head)
          together[static_cast<size_t>(at - head)] += all[i];
      CHECK((together == std::vector<double>(together.size(), 1)));
    }
  world.barrier();
  if (world.rank() == 0) std::filesystem::remove_all(folder_of(""));
  world.barrier();
}

TEST_CASE(
    "a model's files have the names and the layout of its weight map, and come back bit by bit") {
  const auto comm = make_communicator();
  Communicator& world = *comm;
  const std::string own = train_to("plain", plain(), 0, 3, world);
  const std::string files = train_to("renamed", renamed(), 0, 3, world);
  CHECK((own != files));
  // The same training run: only files differ.
  for (const auto& [name, shape] :
       std::vector<std::pair<std::string, Shape>>{{"wte.weight", {kIds, kWidth}},
                                                  {"h.1.qkv.weight", {3 * kWidth, kWidth}},
                                                  {"h.1.qkv.bias", {3 * kWidth}},
                                                  {"h.0.up.weight", {kWidth, kWidth}},
                                                  {"h.0.up.bias", {kWidth}},
                                                  {"head.weight", {kIds, kWidth}}}) {
    INFO(name);
    CHECK((weight_in(folder_of("plain"), plain(), name, shape) ==
           weight_in(folder_of("renamed"), renamed(), name, shape)));
  }
  const InputFile file(folder_of("renamed") + "/model.safetensors", "the weights file");
  std::vector<std::string> names;
  for (const SafetensorsTensor& tensor : read_safetensors_header(file).tensors)
    if (tensor.name.find(".1.") == std::string::npos) names.push_back(tensor.name);
  CHECK(names ==
        std::vector<std::string>{"model.embed_tokens.weight", "model.layers.0.q_proj.bias",
                                 "model.layers.0.k_proj.bias", "model.layers.0.v_proj.bias",
                                 "model.layers.0.q_proj.weight", "model.layers.0.k_proj.weight",
                                 "model.layers.0.v_proj.weight", "h.0.up.bias",
                                 "model.layers.0.c_fc.weight", "head.weight"});
  for (const int stage : {0, 1, 3}) {
    INFO("stage " << stage);
    CHECK((train_to("again", renamed(), stage, 0, world, "renamed") == files));
  }
  CHECK((train_to("trained", renamed(), 3, 3, world) == files));
  world.barrier();
  if (world.rank() == 0) std::filesystem::remove_all(folder_of(""));
}

}  // namespace dstrain
