// Failures below a disk store: each is one error with file, offset and reason, or does no harm.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <map>

#include "runtime/core/error.h"
#include "tests/storage/disk/store_fixture.h"

namespace dstrain {
namespace {

using Catch::Contains;

constexpr int64_t kSize = 40 * 4096 + 100;
constexpr AioConfig kChunks{.block_size = 8192, .queue_depth = 4};

struct Fault : StoreFixture {
  explicit Fault(const AioConfig& config = kChunks) : StoreFixture({{"w", kSize}}, config) {
    open();
    bytes.fill(1);
    store->write(0, 0, bytes.data(), kSize).wait();
  }

  std::string error_of(const DiskStore::Ticket& ticket) {
    try {
      ticket.wait();
    } catch (const RunError& e) {
      CHECK_THROWS_AS(ticket.done(), RunError);  // the same answer at every question
      return e.what();
    }
    return "";
  }
  std::string read_error() { return error_of(store->read(0, 0, bytes.data(), kSize)); }
  std::string write_error() { return error_of(store->write(0, 0, bytes.data(), kSize)); }
  bool reads_back() {
    const Bytes read(kSize);
    store->read(0, 0, read.data(), kSize).wait();
    return read.equals(bytes) && read.guard_is_whole();
  }

  Bytes bytes{kSize};
};

int64_t offset_of(const iocb& request) {
  return request.u.c.offset;
}

TEST_CASE("a request that the drive fails is an error with file, offset and reason") {
  const int error = GENERATE(EIO, ENOSPC, EDQUOT, EROFS);
  Fault f;
  f.calls.change_results([error](const iocb& request, int64_t result) {
    return offset_of(request) == 16'384 ? -error : result;
  });
  const std::string where = "8192 bytes at offset 16384 of " + f.files->name(0);
  CHECK_THAT(f.read_error(), Contains("cannot read " + where) && Contains(std::strerror(error)));
  CHECK_THAT(f.write_error(), Contains("cannot write " + where) && Contains(std::strerror(error)));
  f.calls.change_results({});
  f.store->write(0, 0, f.bytes.data(), kSize).wait();
  CHECK(f.reads_back());
}

TEST_CASE("a request that is refused at once is an error like one that fails later") {
  Fault f;
  f.calls.fail_submissions(EIO, 1);
  CHECK_THAT(f.read_error(), Contains("at offset 0 of " + f.files->name(0)) &&
                                 Contains("Input/output error") && Contains("dmesg"));
  CHECK(f.reads_back());
}

TEST_CASE("requests that are cut short go on where they ended") {
  Fault f({.block_size = 32'768, .queue_depth = 2});
  std::map<int64_t, int> cut;  // an odd number of bytes of a request, once
  f.calls.change_results([&cut](const iocb& request, int64_t result) {
    return result > 8192 && cut[offset_of(request)]++ == 0 ? 5000 : result;
  });
  CHECK(f.reads_back());
  CHECK(cut.size() > 4);
  cut.clear();
  f.bytes.fill(2);
  f.store->write(0, 0, f.bytes.data(), kSize).wait();
  CHECK(cut.size() > 4);
  CHECK(f.reads_back());
}

TEST_CASE("a request that moves nothing is an error, not an endless loop") {
  const int64_t moved = GENERATE(0, 100);
  Fault f;
  f.calls.change_results([moved](const iocb&, int64_t) { return moved; });
  CHECK_THAT(f.read_error(),
             Contains("cannot read 8192 bytes") && Contains("moved " + std::to_string(moved)));
  CHECK_THAT(f.write_error(), Contains("cannot write 8192 bytes"));
}

TEST_CASE("what the kernel puts off is asked for again") {
  const int error = GENERATE(EAGAIN, EINTR);
  Fault f;
  f.calls.fail_submissions(error, 3);
  CHECK(f.reads_back());
  f.calls.completion_error = EINTR;
  CHECK(f.reads_back());
  std::map<int64_t, int> asked;
  f.calls.change_results([&](const iocb& request, int64_t result) {
    return asked[offset_of(request)]++ < 2 ? -error : result;
  });
  CHECK(f.reads_back());
  CHECK(asked.size() > 10);
}

TEST_CASE("what the kernel puts off for ever is an error") {
  Fault f;
  f.calls.fail_submissions(EAGAIN, -1);
  CHECK_THAT(f.read_error(), Contains("Resource temporarily unavailable"));
}

TEST_CASE("a kernel that takes few requests at a time gets the others later") {
  Fault f({.block_size = 4096, .queue_depth = 16});
  f.calls.most_at_a_time = 3;
  CHECK(f.reads_back());
}

TEST_CASE("a file that was truncated behind our back is named, for reads and for writes") {
  Fault f;
  REQUIRE(::ftruncate(f.files->descriptor(0), 10'000) == 0);
  const std::string named = "truncated the file to 10000 bytes (167936 were reserved)";
  CHECK_THAT(f.read_error(), Contains(f.files->name(0)) && Contains(named));
  CHECK_THAT(f.write_error(), Contains(f.files->name(0)) && Contains(named));
  CHECK(f.calls.size(f.files->descriptor(0)) == 10'000);
}

TEST_CASE("a drive that does not answer is an error within the limit, and may answer later") {
  StoreFixture f({{"w", kSize}, {"v", 4096}}, kChunks);
  DiskStore& store = f.open(std::chrono::milliseconds(100));
  Bytes bytes(kSize);
  f.calls.hold_completions(true);
  const auto begin = DiskClock::now();
  const auto ticket = store.write(0, 0, bytes.data(), kSize);
  CHECK_FALSE(ticket.done());
  CHECK_THROWS_WITH(ticket.wait(), Contains("cannot write w at offset 0 of " + f.files->name(0)) &&
                                       Contains("has not answered for 0.1 s"));
  CHECK(DiskClock::now() - begin < std::chrono::seconds(20));
  CHECK_THROWS_AS(ticket.done(), RunError);
  // What waits behind it is late, too, although it has not begun.
  const auto behind = store.read(1, 0, bytes.data(), 4096);
  CHECK_THROWS_WITH(behind.wait(), Contains("has not answered"));
  f.calls.hold_completions(false);
  while (true) try {
      if (ticket.done()) break;
    } catch (const RunError&) {  // until the drive has answered
    }
  CHECK_NOTHROW(ticket.wait());
}

TEST_CASE("an operation that waits for a long one before it is not late") {
  StoreFixture f({{"w", 200 * 4096}, {"v", 4096}}, {.block_size = 4096, .queue_depth = 1});
  // A drive that others write to may stall for a second.
  DiskStore& store = f.open(std::chrono::seconds(3));
  f.calls.change_results([](const iocb&, int64_t result) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return result;
  });
  const Bytes bytes(200 * 4096), behind(4096);
  const auto first = store.write(0, 0, bytes.data(), bytes.size());
  const auto second = store.write(1, 0, behind.data(), 4096);
  CHECK_NOTHROW(second.wait());  // after four seconds
  CHECK_NOTHROW(first.wait());
}

TEST_CASE("a kernel without room for the queue says which setting or limit to change") {
  StoreFixture f({{"w", 4096}}, {.block_size = 4096, .queue_depth = 8, .intra_op_parallelism = 2});
  const auto [error, text] = GENERATE(table<int, std::string>(
      {{EAGAIN, "sysctl fs.aio-max-nr"}, {ENOSYS, "Function not implemented"}}));
  f.calls.setup_error = error;
  CHECK_THROWS_WITH(f.open(), Contains(text));
}

TEST_CASE("a queue that the kernel has no room for yet is set up when others are gone") {
  StoreFixture f({{"w", 4096}}, {.block_size = 4096, .queue_depth = 8, .intra_op_parallelism = 2});
  f.calls.refused_setups = 3;
  CHECK_NOTHROW(f.open());
  CHECK(f.calls.refused_setups == 0);
}

TEST_CASE("a kernel queue that breaks fails what is in flight and nothing after it") {
  Fault f;
  f.calls.completion_error = EINVAL;
  CHECK_THAT(f.read_error(), Contains("Invalid argument"));
  CHECK(f.reads_back());
}

}  // namespace
}  // namespace dstrain
