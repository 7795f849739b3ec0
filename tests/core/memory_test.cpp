#include "runtime/core/memory.h"

#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

TEST_CASE("memory is zero, page-aligned and at least as large as asked") {
  for (int64_t bytes : {int64_t{1}, int64_t{4096}, int64_t{4097}, int64_t{3} << 20}) {
    for (const Memory& memory :
         {Memory::anonymous(bytes, "a test"), Memory::shared(bytes, "a test")}) {
      REQUIRE(memory.bytes() >= bytes);
      REQUIRE(reinterpret_cast<uintptr_t>(memory.data()) % 4096 == 0);
      REQUIRE(std::all_of(memory.data(), memory.data() + memory.bytes(),
                          [](std::byte b) { return b == std::byte{0}; }));
    }
  }
  REQUIRE(Memory::anonymous(0, "nothing").data() == nullptr);
}

TEST_CASE("a peer's mapping shows the same bytes") {
  Memory memory = Memory::shared(10000, "a test");
  const Memory peer = Memory::open_peer(::getpid(), memory.fd(), memory.bytes());
  REQUIRE(peer.data() != memory.data());
  memory.data()[9999] = std::byte{7};
  REQUIRE(peer.data()[9999] == std::byte{7});
  peer.data()[0] = std::byte{9};
  REQUIRE(memory.data()[0] == std::byte{9});
}

TEST_CASE("what cannot be mapped is a run error that names it") {
  REQUIRE_THROWS_WITH(Memory::anonymous(int64_t{1} << 60, "the weights"),
                      Catch::Matchers::StartsWith("cannot reserve 1152921504606846976 bytes of "
                                                  "memory for the weights: "));
  REQUIRE_THROWS_WITH(Memory::shared(int64_t{1} << 62, "the weights"),
                      Catch::Matchers::Contains("memory for the weights: "));
  REQUIRE_THROWS_WITH(Memory::open_peer(::getpid(), 100000, 4096),
                      Catch::Matchers::Contains("/fd/100000: No such file or directory"));
  const Memory small = Memory::shared(4096, "a test");
  REQUIRE_THROWS_WITH(Memory::open_peer(::getpid(), small.fd(), 8192),
                      Catch::Matchers::Contains("has 4096 bytes, expected 8192"));
}

TEST_CASE("a watch expires with the memory, wherever it was moved to") {
  Memory first = Memory::shared(4096, "a test");
  const std::weak_ptr<const void> watch = first.watch();
  {
    Memory second = std::move(first);
    REQUIRE_FALSE(watch.expired());
  }
  REQUIRE(watch.expired());
}

}  // namespace
}  // namespace dstrain
