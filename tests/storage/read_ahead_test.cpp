#include "runtime/storage/weights/read_ahead.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "runtime/core/files/input_file.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using namespace std::chrono_literals;

// Returns how many pages of the file are in the page cache.
int64_t pages_cached(const InputFile& file) {
  const auto bytes = static_cast<size_t>(file.size());
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  REQUIRE(mapped != MAP_FAILED);
  std::vector<unsigned char> pages((bytes + page - 1) / page);
  REQUIRE(::mincore(mapped, bytes, pages.data()) == 0);
  ::munmap(mapped, bytes);
  int64_t cached = 0;
  for (const unsigned char one : pages) cached += one & 1;
  return cached;
}

TEST_CASE("weights that are read ahead come into the page cache, unless the reader goes before") {
  TempDir dir;
  const std::string path = dir.write("model.safetensors", std::string((5 << 20) + 3, 'w'));
  const InputFile file(path, "the weights file");
  ::fsync(file.descriptor());
  const int64_t all = pages_cached(file);
  CHECK(::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED) == 0);
  { const ReadAhead none(path); }
  const ReadAhead ahead(path);
  for (int i = 0; i < 1000 && pages_cached(file) < all; ++i) std::this_thread::sleep_for(10ms);
  CHECK(pages_cached(file) == all);
}

TEST_CASE("what is wrong with weights is not for those who read ahead to say") {
  TempDir dir;
  const ReadAhead missing(dir / "model.safetensors"), folder(dir / ".");
  const ReadAhead outside(
      dir.write("model.safetensors.index.json", R"({"weight_map": {"a": "../a.safetensors"}})"));
}

}  // namespace
}  // namespace dstrain
