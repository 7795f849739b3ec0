// Checkpoints after a crash, a truncation and a flipped bit.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <random>

#include "runtime/core/checksum.h"
#include "runtime/core/error.h"
#include "runtime/storage/checkpoint/checkpoint_load.h"
#include "runtime/storage/checkpoint/checkpoint_save.h"
#include "runtime/storage/checkpoint/manifest.h"
#include "tests/storage/checkpoint/state_fixture.h"
#include "tests/storage/checkpoint/threads_as_ranks.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

void save_alone(const std::string& dir, int64_t step, const std::vector<FixtureTensor>& specs) {
  ThreadGroup group(1);
  ThreadComm comm(group, 0);
  FixtureRank rank(specs, 0, 1);
  rank.fill(step);
  save_checkpoint(dir, {.step = step}, rank.state(), comm);
}

// Returns the step that was loaded after checking its values, or the error message.
struct Loaded {
  int64_t step = -1;
  std::string error;
};

Loaded load_alone(const std::string& dir, const std::vector<FixtureTensor>& specs) {
  ThreadGroup group(1);
  ThreadComm comm(group, 0);
  FixtureRank rank(specs, 0, 1);
  try {
    const int64_t step = load_checkpoint(dir, rank.state(), comm).label.step;
    return {step, rank.has_values_of(step) ? "" : "other values than were saved"};
  } catch (const UserError& error) {
    return {-1, error.what()};
  }
}

TEST_CASE("a process killed while it saves leaves the checkpoint before loadable", "[crash]") {
  TempDir dir;
  const std::vector<FixtureTensor> specs = small_model();
  const auto start = std::chrono::steady_clock::now();
  save_alone(dir.path(), 1, specs);
  const auto one_save = std::chrono::duration_cast<std::chrono::microseconds>(
                            std::chrono::steady_clock::now() - start) +
                        std::chrono::milliseconds(2);
  std::mt19937 random(1);
  int64_t newest = 1;
  constexpr int kRounds = 30;
  // On a machine that has become slower since, more and longer rounds follow until one has saved a step.
  for (int round = 0; round < kRounds || newest == 1; ++round) {
    REQUIRE(round < 100 * kRounds);
    const pid_t child = ::fork();
    if (child == 0) {
      // Steps repeat, so that both new and replaced directories are interrupted.
      for (int64_t step = newest + 1;; step += 1) {
        save_alone(dir.path(), step, specs);
        save_alone(dir.path(), step, specs);
      }
    }
    std::uniform_int_distribution<int64_t> up_to(0, 4 * one_save.count() * (1 + round / kRounds));
    std::this_thread::sleep_for(std::chrono::microseconds(up_to(random)));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const Loaded loaded = load_alone(dir.path(), specs);
    CAPTURE(round, newest);
    REQUIRE(loaded.error == "");
    REQUIRE(loaded.step >= newest);
    newest = loaded.step;
  }
  save_alone(dir.path(), newest + 1, specs);
  CHECK(load_alone(dir.path(), specs).step == newest + 1);
}

TEST_CASE("a flipped bit anywhere in the data is found and named with tensor and file") {
  TempDir dir;
  save_alone(dir.path(), 1, small_model());
  const std::string path = dir / "checkpoints/step_1/rank_00000.safetensors";
  const std::string good = bytes_of_file(path);
  size_t header = 8;
  for (size_t i = 0; i < 8; ++i)
    header += static_cast<size_t>(static_cast<unsigned char>(good[i])) << (8 * i);
  for (size_t at = header; at < good.size(); at += 97) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    dir.write("checkpoints/step_1/rank_00000.safetensors", bad);
    CAPTURE(at);
    CHECK_THAT(
        load_alone(dir.path(), small_model()).error,
        Contains(path) && Contains("is damaged: the checksum of bytes [") && Contains("tensor "));
  }
}

TEST_CASE("a flipped bit in a large tensor is found by a rank that reads a part around it only") {
  TempDir dir;
  save_alone(dir.path(), 1, large_model());
  const std::string path = dir / "checkpoints/step_1/rank_00000.safetensors";
  std::string bytes = bytes_of_file(path);
  // In the last block, which only the last of three ranks reads.
  bytes[bytes.size() - 100'000] ^= 1;
  dir.write("checkpoints/step_1/rank_00000.safetensors", bytes);
  const std::vector<std::string> errors = run_ranks(3, [&](Communicator& comm) {
    FixtureRank rank(large_model(), comm.rank(), comm.size());
    load_checkpoint(dir.path(), rank.state(), comm);
  });
  CHECK_THAT(errors[2], Contains("large/master is damaged"));
  CHECK_THAT(errors[0], Contains("rank 2 could not read its part of the checkpoint"));
}

TEST_CASE("a file cut short or missing is named before anything is loaded") {
  TempDir dir;
  save_alone(dir.path(), 1, small_model());
  const std::string path = dir / "checkpoints/step_1/rank_00000.safetensors";
  const auto size = fs::file_size(path);
  fs::resize_file(path, size - 1);
  CHECK_THAT(load_alone(dir.path(), small_model()).error,
             Contains(fmt::format("{} has {} bytes", path, size - 1)) && Contains("cut short"));
  CHECK_THROWS_WITH(find_checkpoint(dir.path()), Contains("cut short"));
  fs::remove(path);
  CHECK_THAT(load_alone(dir.path(), small_model()).error,
             Contains(path) && Contains("No such file"));
}

TEST_CASE("no damage to the manifest goes unnoticed, and each is an error that names it") {
  TempDir dir;
  save_alone(dir.path(), 1, small_model());
  const std::string path = dir / "checkpoints/step_1/manifest.json";
  const std::string good = bytes_of_file(path);
  for (size_t at = 0; at + 1 < good.size(); at += 7) {  // the last byte is a line end
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x04);
    CAPTURE(at);
    CHECK_THROWS_AS(parse_manifest(bad, path), UserError);
    CHECK_THROWS_WITH(parse_manifest(good.substr(0, at), path), Contains(path));
  }
}

TEST_CASE("a manifest with a right checksum and impossible content is refused") {
  const auto error = [](const std::function<void(Manifest&)>& change) {
    Manifest m{.label = {.step = 3}, .files = {{"rank_00000.safetensors", 100}}, .tensors = {}};
    m.tensors.push_back(
        {"w",
         "master",
         DType::f32,
         {4, 4},
         {{.begin = 0, .elements = 16, .file = 0, .offset = 36, .checksums = {7}}}});
    change(m);
    try {
      const Manifest read = parse_manifest(manifest_text(m), "m.json");
      return coverage_error(read, read.tensors.at(0));
    } catch (const UserError& e) {
      return std::string(e.what());
    }
  };
  CHECK(error([](Manifest&) {}) == "");
  CHECK_THAT(error([](Manifest& m) { m.tensors[0].slices[0].offset = 37; }),
             Contains("m.json: tensor w/master") && Contains("passes the end of rank_00000"));
  CHECK_THAT(error([](Manifest& m) { m.tensors[0].slices[0].offset = -1; }),
             Contains("offset is -1"));
  CHECK_THAT(error([](Manifest& m) { m.tensors[0].slices[0].begin = 1; }),
             Contains("outside of its 16 elements"));
  CHECK_THAT(error([](Manifest& m) { m.tensors[0].slices[0].elements = int64_t{1} << 40; }),
             Contains("outside"));
  CHECK_THAT(error([](Manifest& m) { m.tensors[0].slices[0].elements = 15; }),
             Contains("w/master: elements [15, 16) are missing"));
  CHECK_THAT(error([](Manifest& m) { m.tensors[0].slices[0].file = 1; }), Contains("no file 1"));
  CHECK_THAT(error([](Manifest& m) {
               m.tensors[0].slices[0].checksums = {7, 8};
             }),
             Contains("2 checksums for 64 bytes"));
  CHECK_THAT(error([](Manifest& m) {
               m.tensors[0].shape = {int64_t{1} << 62, 4};
             }),
             Contains("impossible shape"));
  CHECK_THAT(error([](Manifest& m) { m.files[0].name = "../x"; }),
             Contains("\"../x\" is not the name of a file in its directory"));
  CHECK_THAT(error([](Manifest& m) { m.tensors[0].slices.push_back(m.tensors[0].slices[0]); }),
             Contains("saved twice"));
}

TEST_CASE("a manifest with impossible parts, or parts that do not cover a tensor, is refused") {
  const auto error = [](const Shape& shape, const std::vector<CheckpointSlice>& slices) {
    Manifest m{.label = {.step = 3}, .files = {{"rank_00000.safetensors", 1000}}, .tensors = {}};
    m.tensors.push_back({"w", "master", DType::f32, shape, slices});
    try {
      const Manifest read = parse_manifest(manifest_text(m), "m.json");
      return coverage_error(read, read.tensors.at(0));
    } catch (const UserError& e) {
      return std::string(e.what());
    }
  };
  const auto slice = [](int64_t begin, int64_t elements, const TensorPart& part) {
    return CheckpointSlice{.begin = begin, .elements = elements, .checksums = {7}, .part = part};
  };
  const TensorPart first{.by = TensorPart::By::columns, .parts = 2},
      second{.by = TensorPart::By::columns, .parts = 2, .part = 1};
  CHECK(error({4, 5}, {slice(0, 12, first), slice(0, 5, second), slice(5, 7, second)}) == "");
  CHECK(error({4, 5}, {slice(0, 12, first)}) ==
        "w/master: part 1 of 2: elements [0, 12) are missing");
  CHECK_THAT(error({4, 5}, {slice(0, 12, first), slice(0, 12, first), slice(0, 12, second)}),
             Contains("w/master: part 0 of 2: elements [0, 12) are saved twice"));
  CHECK_THAT(error({4, 5}, {slice(0, 12, first), slice(1, 11, second)}),
             Contains("part 1 of 2: elements [0, 1) are missing, before the slice in rank_00000"));
  CHECK_THAT(error({4, 5}, {slice(0, 12, first), slice(0, 12, second), slice(0, 20, {})}),
             Contains("the slice in rank_00000.safetensors is of another division"));
  CHECK_THAT(error({4, 5}, {slice(0, 12, first), slice(0, 13, second)}),
             Contains("slice [0, 13) is outside of its 12 elements"));
  CHECK_THAT(error({4, 5}, {slice(0, 12, {.by = TensorPart::By::columns, .parts = 2, .part = 2})}),
             Contains("m.json: tensor w/master: there is no part 2 of 2"));
  CHECK_THAT(error({4, 5}, {slice(0, 12, {.by = TensorPart::By::columns, .parts = 0})}),
             Contains("there is no part 0 of 0"));
  CHECK_THAT(error({4, 5}, {slice(0, 12, {.by = TensorPart::By::columns, .parts = 1 << 20})}),
             Contains("there is no part 0 of 1048576"));
  CHECK_THAT(error({4, 5}, {slice(0, 12, {.by = TensorPart::By::rows, .parts = 2, .sections = 3})}),
             Contains("3 sections of the rows of (4, 5)"));
  CHECK_THAT(error({20}, {slice(0, 10, first)}), Contains("the vector (20) has no columns"));
  CHECK_THAT(error({0, 4}, {slice(0, 0, first)}), Contains("(0, 4) has no rows and columns"));
  CHECK_THAT(error({int64_t{1} << 60, 1}, {slice(0, 12, first)}), Contains("impossible shape"));
}

TEST_CASE("a checkpoint of another format version is named as such") {
  std::string content =
      "{\"files\":[],\"format\":\"dstrain checkpoint\",\"step\":3,\"summary\":\"\","
      "\"tensors\":[],\"version\":3}";
  const auto parse = [&] {
    const uint64_t sum = checksum_of(content.data(), static_cast<int64_t>(content.size()));
    return parse_manifest(fmt::format("{{\"checksum\":\"{:016x}\",\"content\":{}}}", sum, content),
                          "m.json");
  };
  CHECK_THROWS_WITH(
      parse(), Contains("m.json") && Contains("version 3") && Contains("reads versions 1 and 2"));
  content.replace(content.find("\"version\":3"), 11, "\"version\":1");
  CHECK(parse().label.step == 3);
  content.replace(content.find("dstrain"), 7, "another");
  CHECK_THROWS_WITH(parse(), Contains("m.json is not the manifest of a checkpoint"));
}

}  // namespace
}  // namespace dstrain
