#include "runtime/engine/disk/disk_arena.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <filesystem>
#include <numeric>

#include "runtime/core/error.h"
#include "tests/support/temp_dir.h"

using namespace dstrain;

namespace {

// A plan of two tensors on disk of odd sizes.
Plan small_plan() {
  Plan plan;
  for (const auto& [name, elements, offset] :
       {std::tuple{"host", 10, int64_t{0}}, {"a", 3001, int64_t{0}}, {"b", 5000, int64_t{12288}}}) {
    const bool disk = std::string(name) != "host";
    plan.program.add_buffer(
        {.name = name, .shape = {elements}, .space = disk ? Space::disk : Space::host});
    plan.address.push_back({disk ? Region::disk : Region::host, offset});
  }
  return plan;
}

}  // namespace

TEST_CASE("tensors on disk begin as zeros and keep every byte, wherever a piece begins") {
  const TempDir one, two;
  Job job;
  job.offload.nvme_paths = {one.path(), two.path()};
  job.aio.block_size = 8192;
  const Memory addresses = Memory::addresses(32768, "test");
  {
    DiskArena disk(small_plan(), job, addresses.data());
    for (const auto& [offset, bytes] : {std::pair{0, 3001 * 4}, {12288, 5000 * 4}}) {
      const auto size = static_cast<size_t>(bytes);
      std::vector<std::byte> expected(size), found(size, std::byte{1});
      std::byte* const at = addresses.data() + offset;
      disk.download(found.data(), at, bytes);
      CHECK(found == expected);
      unsigned next = 1;
      for (const auto& [begin, length] :
           {std::pair{0, bytes}, {4, 100}, {4092, 8}, {8192, 3000}, {100, 9000}, {bytes - 4, 4}}) {
        std::vector<std::byte> piece(static_cast<size_t>(length));
        for (std::byte& b : piece) b = static_cast<std::byte>(next++ * 2654435761U >> 24);
        disk.upload(at + begin, piece.data(), length);
        std::ranges::copy(piece, expected.begin() + begin);
        disk.download(found.data(), at, bytes);
        CHECK(found == expected);
        std::vector<std::byte> part(static_cast<size_t>(length));
        disk.download(part.data(), at + begin, length);
        CHECK(part == piece);
      }
    }
  }
  CHECK(std::filesystem::is_empty(one.path()));
  CHECK(std::filesystem::is_empty(two.path()));
}

TEST_CASE("tensors without elements do not hide those that have their addresses") {
  const TempDir drive;
  Job job;
  job.offload.nvme_paths = {drive.path()};
  constexpr int kTensors = 40;  // more than what sorts keep in order
  Plan plan;
  std::vector<std::pair<int64_t, int64_t>> places;  // offset and bytes
  int64_t end = 0;
  for (int i = 0; i < kTensors; ++i) {
    const int64_t elements = i % 3 == 0 ? 1000 + 7 * i : 0;
    plan.program.add_buffer({.name = std::to_string(i),
                             .shape = {elements},
                             .lifetime = Lifetime::persistent,
                             .space = Space::disk});
    plan.address.push_back({Region::disk, end});
    if (elements > 0) places.emplace_back(end, 4 * elements);
    end += disk_blocks_up(4 * elements);
  }
  const Memory addresses = Memory::addresses(end, "test");
  DiskArena disk(plan, job, addresses.data());
  const auto values = [](int64_t bytes, size_t i) {
    return std::vector<std::byte>(static_cast<size_t>(bytes), static_cast<std::byte>(i + 1));
  };
  for (size_t i = 0; i < places.size(); ++i) {
    const auto [offset, bytes] = places[i];
    disk.upload(addresses.data() + offset, values(bytes, i).data(), bytes);
    // The drive queue asks as a step does.
    auto first = values(100, i);
    const Tensor part{addresses.data() + offset, {100}, DType::u8};
    disk.read(part, {first.data(), {100}, DType::u8}).wait();
    CHECK(first == values(100, i));
  }
  for (size_t i = 0; i < places.size(); ++i) {
    const auto [offset, bytes] = places[i];
    auto found = values(bytes, 99);
    disk.download(found.data(), addresses.data() + offset, bytes);
    CHECK(found == values(bytes, i));
  }
  // Nothing of an empty tensor, wherever it lies, and never a byte behind a tensor.
  disk.upload(addresses.data() + end, nullptr, 0);
  disk.download(nullptr, addresses.data(), 0);
  std::array<std::byte, 4096> block{};
  const auto [offset, bytes] = places.front();
  CHECK_THROWS_AS(disk.upload(addresses.data() + offset + bytes - 4, block.data(), 8),
                  InternalError);
  CHECK_THROWS_AS(disk.download(block.data(), addresses.data() + offset + bytes - 4, 8),
                  InternalError);
}

TEST_CASE("a directory that cannot be made is the user's error") {
  const TempDir dir;
  const std::string file = dir.write("file", "x");
  Job job;
  job.offload.nvme_paths = {file + "/below"};
  const Memory addresses = Memory::addresses(32768, "test");
  CHECK_THROWS_AS(DiskArena(small_plan(), job, addresses.data()), UserError);
}
