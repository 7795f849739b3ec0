// DeepSpeed's checkpoints: data/deepspeed has those that DeepSpeed 0.19.8 saved of a small model on two ranks, with a frozen
// layer, a tied head and buffers, and what its zero_to_fp32 made of them (want.safetensors).
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>

#include "runtime/core/error.h"
#include "runtime/storage/foreign/deepspeed_files.h"
#include "runtime/storage/foreign/deepspeed_weights.h"
#include "tests/support/pickle/pickle_text.h"
#include "tests/support/source_file.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using Make = PickleText;

std::string checkpoint(const std::string& name) {
  return source_file("tests/storage/foreign/data/deepspeed/" + name);
}

ForeignWeights deepspeed_weights(const std::string& folder, const std::string& tag = "") {
  return weights_of_deepspeed(find_deepspeed_files(folder, tag));
}

// Returns types, sizes and bytes of all tensors of a file, by name.
std::map<std::string, std::string> tensors_of(const std::string& path) {
  const InputFile file(path, "the weights");
  std::map<std::string, std::string> tensors;
  for (const SafetensorsTensor& t : read_safetensors_header(file).tensors) {
    std::string bytes(static_cast<size_t>(t.end - t.begin), '\0');
    file.read_at(bytes.data(), std::ssize(bytes), t.begin);
    std::string text(t.type.name);
    for (const int64_t size : t.shape) text += " " + std::to_string(size);
    tensors[t.name] = text + ": " + bytes;
  }
  return tensors;
}

std::map<std::string, std::string> written(const ForeignWeights& weights) {
  const TempDir dir;
  NewFile file(dir / "model.safetensors");
  write_weights(weights, file);
  file.commit();
  return tensors_of(file.path());
}

// A copy of a checkpoint, to damage.
struct Copy {
  explicit Copy(const std::string& name) {
    fs::copy(checkpoint(name), dir.path(), fs::copy_options::recursive);
  }
  std::string operator/(const std::string& name) const { return dir / ("step3/" + name); }
  std::string fault() const {
    try {
      written(deepspeed_weights(dir.path()));
    } catch (const UserError& e) {
      return e.what();
    }
    return {};
  }
  TempDir dir;
};

TEST_CASE("the masters of all ranks are put together as DeepSpeed's zero_to_fp32 does") {
  const std::string stage = GENERATE("stage1", "stage2", "stage3");
  CAPTURE(stage);
  CHECK(is_deepspeed_folder(checkpoint(stage)));
  auto found = written(deepspeed_weights(checkpoint(stage)));
  const auto want = tensors_of(checkpoint(stage) + "/want.safetensors");
  CHECK(found.size() == 11);
  // zero_to_fp32 leaves out the frozen layer at stage 1.
  for (const auto& [name, tensor] : want) {
    CAPTURE(name);
    CHECK(found[name] == tensor);
  }
  CHECK(want.size() == (stage == "stage1" ? 9 : 11));
  CHECK(found["head.weight"] == found["emb.weight"]);
  CHECK(found["norm.num_batches_tracked"].starts_with("I64: "));
  CHECK(found["frozen.weight"] ==
        tensors_of(checkpoint("stage2") + "/want.safetensors")["frozen.weight"]);
  CHECK(written(deepspeed_weights(checkpoint(stage), "step3")) == found);
  CHECK(written(deepspeed_weights(checkpoint(stage) + "/step3")) == found);
}

TEST_CASE("a universal checkpoint has a file for each parameter") {
  const TempDir dir;
  const std::string zero = dir / "step3/zero";
  const auto add = [&zero](const std::string& name, const std::string& value) {
    fs::create_directories(zero + "/" + name);
    std::ofstream(zero + "/" + name + "/fp32.pt", std::ios::binary)
        << Make::file(Make::of(value), {std::string(24, 'x')});
  };
  add("a.weight",
      Make::dict({Make::text("cat_dim"), Make::integer(0), Make::text("param"), Make::tensor({})}));
  add("a.bias", Make::tensor({.sizes = {3}, .strides = {1}}));
  dir.write("latest_universal", "step3");
  const std::map<std::string, std::string> want{{"a.weight", "F32 2 3: " + std::string(24, 'x')},
                                                {"a.bias", "F32 3: " + std::string(12, 'x')}};
  CHECK(written(deepspeed_weights(dir.path())) == want);
  fs::copy(checkpoint("stage2") + "/step3/mp_rank_00_model_states.pt", dir / "step3");
  const auto all = written(deepspeed_weights(dir.path()));
  CHECK(all.at("a.weight") == want.at("a.weight"));
  CHECK(all.contains("norm.running_mean"));
  CHECK(all.contains("frozen.weight"));
}

TEST_CASE("a checkpoint without optimizers has the weights of its module") {
  const Copy copy("stage2");
  const auto whole = written(deepspeed_weights(copy.dir.path()));
  for (const char* rank : {"0", "1"})
    fs::remove(copy / (std::string("zero_pp_rank_") + rank + "_mp_rank_00_optim_states.pt"));
  CHECK(written(deepspeed_weights(copy.dir.path())) == whole);
}

TEST_CASE("a checkpoint that lacks files, or has those of others, is refused") {
  const std::string optimizer = "zero_pp_rank_1_mp_rank_00_optim_states.pt",
                    model = "mp_rank_00_model_states.pt";
  const auto fault = [](const std::string& of, const auto& change) {
    const Copy copy(of);
    CHECK(copy.fault().empty());
    change(copy);
    return copy.fault();
  };
  CHECK_THAT(fault("stage2", [&](const Copy& c) { fs::remove(c / optimizer); }),
             Contains("2 ranks have saved it, and there are 1 files *_optim_states.pt"));
  CHECK_THAT(fault("stage3", [&](const Copy& c) { fs::remove(c / ("zero_pp_rank_1_" + model)); }),
             Contains("2 ranks have saved it, and there are 1 files *_model_states.pt"));
  CHECK_THAT(fault("stage3", [&](const Copy& c) { fs::remove(c / ("zero_pp_rank_0_" + model)); }),
             Contains("the file of rank 0 is missing"));
  CHECK_THAT(fault("stage2",
                   [&](const Copy& c) {
                     fs::rename(c / optimizer, c / "zero_pp_rank_3_mp_rank_00_optim_states.pt");
                   }),
             Contains("the file of rank 1 is missing"));
  CHECK_THAT(
      fault("stage2", [&](const Copy& c) { fs::copy(c / optimizer, c / ("bf16_" + optimizer)); }),
      Contains("are both of rank 1"));
  CHECK_THAT(fault("stage2",
                   [&](const Copy& c) { fs::copy(c / model, c / "mp_rank_01_model_states.pt"); }),
             Contains("(tensor parallelism)") && Contains("ds_to_universal"));
  CHECK_THAT(
      fault("stage2",
            [&](const Copy& c) { fs::copy(c / model, c / "layer_01-model_00-model_states.pt"); }),
      Contains("(a pipeline)"));
  CHECK_THAT(fault("stage2", [&](const Copy& c) { c.dir.write("latest", "../step3"); }),
             Contains("latest names \"../step3\", expected the name of a folder there"));
  CHECK_THAT(fault("stage2", [&](const Copy& c) { c.dir.write("latest", "step4\n"); }),
             Contains("/step4: latest names it; expected a folder with files *_model_states.pt"));
  CHECK_THAT(fault("stage2", [&](const Copy& c) { fs::resize_file(c / optimizer, 1000); }),
             Contains(optimizer));
  const TempDir dir;
  CHECK_FALSE(is_deepspeed_folder(dir.path()));
}

TEST_CASE("parameters that are not those of the optimizers are refused") {
  const auto sizes = [](const std::vector<int64_t>& numbers) { return Make::numbers(numbers); };
  const auto fault = [](const std::string& shape, int stage, const std::string& more = "") {
    const TempDir dir;
    const std::string group = Make::dict({Make::text("w"), shape});
    const std::string stage_3 = stage == 3 ? "zero_pp_rank_0_" : "";
    dir.write(stage_3 + "mp_rank_00_model_states.pt",
              Make::file(Make::of(Make::dict({Make::text("module"), "}", Make::text("buffer_names"),
                                              "]", Make::text("param_shapes"), "]" + group + "a"})),
                         {}));
    dir.write(
        "zero_pp_rank_0_mp_rank_00_optim_states.pt",
        Make::file(Make::of(Make::dict(
                       {Make::text("optimizer_state_dict"),
                        Make::dict({Make::text("zero_stage"), Make::integer(stage),
                                    Make::text("partition_count"), Make::integer(1),
                                    Make::text(stage == 3 ? "fp32_flat_groups"
                                                          : "single_partition_of_fp32_groups"),
                                    "]" + Make::tensor({.sizes = {6}, .strides = {1}}) + "a"}) +
                            more})),
                   {std::string(24, 'x')}));
    try {
      written(deepspeed_weights(dir.path()));
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  for (const int stage : {1, 3}) {
    CHECK(fault(sizes({2, 3}), stage).empty());
    CHECK_THAT(fault(sizes({7}), stage),
               Contains("\"w\" has 7 elements, of which the optimizers lack 1"));
    CHECK_THAT(fault(sizes({int64_t{1} << 62}), stage), Contains("the optimizers lack"));
    CHECK_THAT(fault(sizes({int64_t{1} << 62, 4}), stage),
               Contains("expected the sizes of a parameter"));
    CHECK_THAT(fault(sizes({-1}), stage), Contains("expected the sizes of a parameter"));
    CHECK_THAT(fault("N", stage), Contains("expected the sizes of a parameter, got None"));
  }
  CHECK_THAT(fault(sizes({2}), 1), Contains("a group has 6 elements, and its parameters need 2"));
  CHECK_THAT(fault(sizes({2}), 3),
             Contains("a rank has 6 elements, and its parts of the parameters are 2"));
  CHECK_THAT(fault(sizes({6}), 4), Contains("expected a stage of ZeRO from 0 to 3"));
}

}  // namespace
}  // namespace dstrain
