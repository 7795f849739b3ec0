// Tensors go to the drives of a disk store and come back.
#include "runtime/storage/disk/disk_store.h"

#include <catch2/catch.hpp>
#include <thread>

#include "runtime/core/error.h"
#include "tests/storage/disk/captured_warnings.h"
#include "tests/storage/disk/store_fixture.h"
#include "tests/support/skip.h"

namespace dstrain {
namespace {

constexpr AioConfig kSmall{.block_size = 8192, .queue_depth = 4};

TEST_CASE(
    "tensors of odd sizes come back whole, in place or copied, and nothing beside them changes") {
  const int drives = GENERATE(1, 2, 3);
  const int64_t shift = GENERATE(0, 64, 4095);
  const AioConfig config{.block_size = GENERATE(1, 4096, 12288, 1 << 20),
                         .queue_depth = 3,
                         .intra_op_parallelism = GENERATE(1, 3)};
  CAPTURE(drives, shift, config.block_size, config.intra_op_parallelism);
  const std::vector<int64_t> sizes{1, 4095, 4096, 4097, 0, 100'000, 8192, 65'537};
  std::vector<DiskExtent> extents;
  for (const int64_t size : sizes) extents.push_back({std::to_string(extents.size()), size});
  StoreFixture f(extents, config, drives);
  DiskStore& store = f.open();
  std::vector<Bytes> written;
  std::vector<DiskStore::Ticket> tickets;
  for (size_t i = 0; i < sizes.size(); ++i) {
    written.emplace_back(sizes[i], shift).fill(i);
    tickets.push_back(store.write(static_cast<int>(i), 0, written[i].data(), sizes[i]));
  }
  for (const auto& ticket : tickets) ticket.wait();
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Bytes read(sizes[i], shift);
    store.read(static_cast<int>(i), 0, read.data(), sizes[i]).wait();
    CHECK(read.equals(written[i]));
    CHECK(read.guard_is_whole());
    CHECK(written[i].equals(Bytes(sizes[i], shift).fill(i)));
  }
}

TEST_CASE("any part of a tensor can be read, and blocks of it replaced") {
  const int drives = GENERATE(1, 2);
  const int64_t size = 50'001;
  StoreFixture f({{"before", 4096}, {"w", size}, {"behind", 4096}}, kSmall, drives);
  DiskStore& store = f.open();
  const int w = store.extent("w");
  Bytes whole(size), neighbour(4096);
  whole.fill(1);
  neighbour.fill(2);
  store.write(w, 0, whole.data(), size).wait();
  for (const char* name : {"before", "behind"})
    store.write(store.extent(name), 0, neighbour.data(), 4096).wait();
  const auto check_parts = [&] {
    for (const auto& [offset, bytes] : std::vector<std::pair<int64_t, int64_t>>{{0, 1},
                                                                                {1, 1},
                                                                                {4095, 2},
                                                                                {4096, 4096},
                                                                                {5000, 30'000},
                                                                                {8191, 8194},
                                                                                {50'000, 1},
                                                                                {40'960, 9041},
                                                                                {50'001, 0}}) {
      for (const int64_t shift : {0, 8}) {
        CAPTURE(offset, bytes, shift);
        const Bytes part(bytes, shift);
        store.read(w, offset, part.data(), bytes).wait();
        CHECK(part.equals(whole, offset));
        CHECK(part.guard_is_whole());
      }
    }
  };
  check_parts();
  std::memset(whole.data() + 8192, 0x33, 4096);
  store.write(w, 8192, whole.data() + 8192, 4096).wait();
  std::memset(whole.data() + 49'152, 0x44, 849);
  store.write(w, 49'152, whole.data() + 49'152, 849).wait();
  check_parts();
  for (const char* name : {"before", "behind"}) {
    const Bytes read(4096);
    store.read(store.extent(name), 0, read.data(), 4096).wait();
    CHECK(read.equals(neighbour));
  }
}

TEST_CASE("many operations at a time end in any order, each with its own bytes") {
  const AioConfig config{.block_size = 4096,
                         .queue_depth = GENERATE(1, 16),
                         .intra_op_parallelism = 2,
                         .single_submit = GENERATE(true, false),
                         .overlap_events = GENERATE(true, false)};
  CAPTURE(config.queue_depth, config.single_submit, config.overlap_events);
  constexpr int kCount = 64;
  constexpr int64_t kBytes = 20'000;
  std::vector<DiskExtent> extents;
  for (int i = 0; i < kCount; ++i) extents.push_back({std::to_string(i), kBytes});
  StoreFixture f(extents, config, 2);
  DiskStore& store = f.open();
  std::vector<Bytes> all;
  std::vector<DiskStore::Ticket> tickets;
  for (int i = 0; i < kCount; ++i) {
    all.emplace_back(kBytes).fill(static_cast<uint64_t>(i));
    tickets.push_back(store.write(i, 0, all.back().data(), kBytes));
  }
  for (auto ticket = tickets.rbegin(); ticket != tickets.rend(); ++ticket) ticket->wait();
  std::vector<Bytes> read;
  tickets.clear();
  for (int i = 0; i < kCount; ++i) {
    read.emplace_back(kBytes);
    tickets.push_back(store.read(i, 0, read.back().data(), kBytes));
  }
  for (const auto& ticket : tickets)
    while (!ticket.done()) std::this_thread::yield();
  for (size_t i = 0; i < kCount; ++i) CHECK(read[i].equals(all[i]));
}

TEST_CASE("single_submit is a system call for each request, otherwise one is for many") {
  const bool single = GENERATE(true, false);
  StoreFixture f({{"w", 64 * 4096}},
                 {.block_size = 4096, .queue_depth = 8, .single_submit = single});
  DiskStore& store = f.open();
  SKIP_UNLESS(f.files->direct(), "no direct I/O here");
  const Bytes bytes(64 * 4096);
  store.write(0, 0, bytes.data(), bytes.size()).wait();
  CHECK((f.calls.largest_submission == 1) == single);
  CHECK(f.calls.largest_submission <= 8);
  CHECK((f.calls.submissions == 64) == single);
}

TEST_CASE("two threads use a store at a time") {
  StoreFixture f({{"0", 300'000}, {"1", 300'000}},
                 {.block_size = 8192, .queue_depth = 4, .intra_op_parallelism = 2}, 2);
  DiskStore& store = f.open();
  std::array<bool, 2> good{};
  const auto use = [&](int extent) {
    bool all = true;
    for (uint64_t round = 0; round < 20; ++round) {
      Bytes out(300'000), in(300'000);
      out.fill(round * 2 + static_cast<uint64_t>(extent));
      store.write(extent, 0, out.data(), out.size()).wait();
      store.read(extent, 0, in.data(), in.size()).wait();
      all = all && in.equals(out);
    }
    good[static_cast<size_t>(extent)] = all;
  };
  std::thread other(use, 1);
  use(0);
  other.join();
  CHECK(good[0]);
  CHECK(good[1]);
}

TEST_CASE("a file system without O_DIRECT works through the page cache") {
  const CapturedWarnings warnings;
  StoreFixture f({{"a", 4097}, {"b", 30'000}}, {.block_size = 4096, .intra_op_parallelism = 2}, 2);
  f.calls.no_direct = true;
  DiskStore& store = f.open();
  Bytes out(30'000, 5), in(30'000, 7);
  out.fill(1);
  store.write(1, 0, out.data(), out.size()).wait();
  store.read(1, 0, in.data(), in.size()).wait();
  CHECK(in.equals(out));
  CHECK(in.guard_is_whole());
  CHECK(warnings.lines() == 1);
}

TEST_CASE("mistakes of the caller are found before anything is written") {
  StoreFixture f({{"w", 10'000}}, kSmall);
  DiskStore& store = f.open();
  const Bytes bytes(10'000);
  CHECK_THROWS_AS(store.extent("v"), InternalError);
  CHECK_THROWS_AS(store.read(0, 1, bytes.data(), 10'000), InternalError);
  CHECK_THROWS_AS(store.read(0, -1, bytes.data(), 1), InternalError);
  CHECK_THROWS_AS(store.write(0, 0, bytes.data(), 10'001), InternalError);
  CHECK_THROWS_AS(store.write(0, 1, bytes.data(), 4095), InternalError);
  CHECK_THROWS_AS(store.write(0, 0, bytes.data(), 4095), InternalError);
  CHECK(f.calls.submissions == 0);
  CHECK_THROWS_AS(DiskStore(*f.files, {{"x", 100'000}}, kSmall, std::chrono::seconds(1)),
                  InternalError);
}

TEST_CASE("a store that ends while operations wait drops them and leaves memory alone") {
  StoreFixture f({{"w", 1 << 20}}, {.block_size = 4096, .queue_depth = 1});
  DiskStore& store = f.open();
  auto bytes = std::make_unique<Bytes>(1 << 20);
  f.calls.hold_completions(true);
  store.write(0, 0, bytes->data(), bytes->size());
  f.calls.hold_completions(false);
  f.store.reset();
  bytes.reset();
  f.files.reset();
  CHECK(std::filesystem::is_empty(f.dir / "0"));
}

}  // namespace
}  // namespace dstrain
