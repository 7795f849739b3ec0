// The optimizer's state in DeepSpeed's checkpoints: tests/golden/deepspeed has those of the same training at each stage.
#include "runtime/storage/foreign/deepspeed_state.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "runtime/core/error.h"
#include "runtime/storage/foreign/optimizer_folder.h"
#include "tests/support/pickle/pickle_text.h"
#include "tests/support/source_file.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using Make = PickleText;

std::string checkpoint(int stage) {
  return source_file("tests/golden/deepspeed/stage" + std::to_string(stage));
}

DeepSpeedState state_in(const std::string& folder) {
  return state_of_deepspeed(find_deepspeed_files(folder, ""));
}

std::string fault_in(const std::string& folder) {
  try {
    state_in(folder);
  } catch (const UserError& e) {
    return e.what();
  }
  return {};
}

using Tensors = std::map<std::string, std::vector<float>>;

// Returns the values of a slot's tensors.
Tensors values_of(const DeepSpeedState& state, const std::string& slot) {
  Tensors values;
  for (const auto& [name, weights] : state.slots) {
    if (name != slot) continue;
    const TempDir dir;
    NewFile file(dir / "a.safetensors");
    write_weights(weights, file);
    file.commit();
    const InputFile input(file.path(), "the state");
    for (const SafetensorsTensor& t : read_safetensors_header(input).tensors) {
      std::string bytes(static_cast<size_t>(t.end - t.begin), '\0');
      input.read_at(bytes.data(), std::ssize(bytes), t.begin);
      std::vector<float>& to = values[t.name];
      to.resize(bytes.size() / sizeof(float));
      std::memcpy(to.data(), bytes.data(), bytes.size());
    }
  }
  return values;
}

void check_close(const Tensors& found, const Tensors& expected, double relative) {
  REQUIRE(found.size() == expected.size());
  for (const auto& [name, values] : expected) {
    CAPTURE(name);
    REQUIRE(found.contains(name));
    REQUIRE(found.at(name).size() == values.size());
    for (size_t i = 0; i < values.size(); ++i)
      CHECK(found.at(name)[i] == Approx(values[i]).epsilon(relative).margin(relative * 1e-3));
  }
}

TEST_CASE("the parts of ranks are put together to the same state at each stage") {
  const DeepSpeedState first = state_in(checkpoint(1));
  CHECK((first.steps == 3 && first.skipped == 0 && first.samples == 12));
  REQUIRE(first.slots.size() == 2);
  CHECK((first.slots[0].first == "exp_avg" && first.slots[1].first == "exp_avg_sq"));
  for (const std::string slot : {"exp_avg", "exp_avg_sq"}) {
    CAPTURE(slot);
    const Tensors expected = values_of(first, slot);
    CHECK(expected.size() == 28);
    // Stages add gradients in other orders.
    for (const int stage : {2, 3})
      check_close(values_of(state_in(checkpoint(stage)), slot), expected, 1e-4);
    // At stage 0 biases are decayed as well, which changes later gradients a little.
    check_close(values_of(state_in(checkpoint(0)), slot), expected, 0.05);
  }
}

TEST_CASE("a universal checkpoint has a file for each slot of a parameter") {
  const TempDir dir;
  const auto add = [&dir](const std::string& name, const std::string& slot) {
    fs::create_directories(dir / ("step3/zero/" + name));
    std::ofstream(dir / ("step3/zero/" + name + "/" + slot + ".pt"), std::ios::binary)
        << Make::file(Make::of(Make::tensor({.elements = 3, .sizes = {3}, .strides = {1}})),
                      {std::string(12, 'x')});
  };
  for (const char* const name : {"a", "b"})
    for (const char* const slot : {"fp32", "exp_avg", "step"}) add(name, slot);
  dir.write("latest_universal", "step3");
  fs::copy(checkpoint(1) + "/step3/mp_rank_00_model_states.pt", dir / "step3");
  const DeepSpeedState state = state_in(dir.path());
  REQUIRE(state.slots.size() == 1);
  CHECK(values_of(state, "exp_avg").size() == 2);
  fs::remove(dir / "step3/zero/b/exp_avg.pt");
  CHECK_THAT(fault_in(dir.path()), Contains("b/exp_avg.pt"));
}

TEST_CASE("state that does not say which parameter it is of is refused") {
  const auto optimizer = [](size_t groups, const std::vector<int64_t>& sizes) {
    std::string all, state;
    for (size_t i = 0; i < groups; ++i) all += "}a";
    const std::string kept = Make::dict(
        {Make::text("exp_avg"), Make::tensor({.elements = 3, .sizes = sizes, .strides = {1}})});
    return Make::dict({Make::text("state"), Make::dict({Make::integer(0), kept}),
                       Make::text("param_groups"), "]" + all});
  };
  const auto fault = [](const std::string& kept, const std::string& parameters) {
    const TempDir dir;
    dir.write(
        "mp_rank_00_model_states.pt",
        Make::file(
            Make::of(Make::dict({Make::text("module"), parameters, Make::text("buffer_names"), "]",
                                 Make::text("optimizer"), kept, Make::text("global_steps"),
                                 Make::integer(3), Make::text("skipped_steps"), Make::integer(0),
                                 Make::text("global_samples"), Make::integer(12)})),
            {std::string(12, 'x')}));
    return fault_in(dir.path());
  };
  const std::string one =
      Make::dict({Make::text("w"), Make::tensor({.elements = 3, .sizes = {3}, .strides = {1}})});
  CHECK(fault(optimizer(1, {3}), one).empty());
  CHECK_THAT(fault(optimizer(2, {3}), one), Contains("2 groups of numbered parameters"));
  CHECK_THAT(fault(optimizer(1, {3}), "}"), Contains("1 parameters, and the module has 0"));
  CHECK_THAT(fault(optimizer(1, {2}), one), Contains("no optimizer's state"));
  CHECK_THAT(fault("N", one), Contains("expected the key \"state\""));
}

TEST_CASE("the progress of a state is read as it was written") {
  const TempDir dir;
  const auto fault = [&dir](const std::string& text) {
    dir.write("progress.json", text);
    try {
      read_progress(dir.path());
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(fault(progress_json({.steps = 5, .skipped = 1, .samples = 40})).empty());
  const ImportedProgress progress = read_progress(dir.path());
  CHECK((progress.steps == 5 && progress.skipped == 1 && progress.samples == 40));
  CHECK_THAT(fault("[]"), Contains("not JSON of an object"));
  CHECK_THAT(fault(R"({"format": 1, "steps": -5, "skipped_steps": 0, "samples": 0})"),
             Contains("expected the number \"steps\""));
  CHECK_THAT(fault(R"({"format": 1, "steps": 1, "skipped_steps": 2, "samples": 0})"),
             Contains("2 of 1 steps are skipped"));
  CHECK_THAT(fault(R"({"format": 2, "steps": 1, "skipped_steps": 0, "samples": 0})"),
             Contains("a later version"));
  CHECK_THROWS_WITH(file_of_slot(dir.path(), "exp_avg"),
                    Contains("there is no exp_avg.safetensors in"));
  CHECK_THROWS_WITH(file_of_slot(dir.path(), "scale"), Contains("none is the state \"scale\""));
}

}  // namespace
}  // namespace dstrain
