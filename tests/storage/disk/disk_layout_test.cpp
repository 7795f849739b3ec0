// Where tensors lie in the files of a disk store.
#include "runtime/storage/disk/disk_layout.h"

#include <catch2/catch.hpp>
#include <set>
#include <utility>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

TEST_CASE("in one file tensors follow one another at whole blocks") {
  const std::vector<DiskExtent> extents{{"a", 1}, {"b", 0}, {"c", 4097}, {"d", 4096}};
  const DiskLayout layout(extents, 1, 8192);
  CHECK(layout.address(0) == 0);
  CHECK(layout.address(1) == 4096);
  CHECK(layout.address(2) == 4096);
  CHECK(layout.address(3) == 3 * 4096);
  CHECK(layout.bytes_of_each_file() == 4 * 4096);
  CHECK(layout.place(3 * 4096).offset == 3 * 4096);
  CHECK(layout.together(4096) == 3 * 4096);
}

TEST_CASE("over several files every block has a place of its own, within the files") {
  const int files = GENERATE(1, 2, 3, 5);
  const int64_t stripe = GENERATE(1, 2, 3) * kDiskBlock;
  const std::vector<DiskExtent> extents{{"a", 5 * 4096 + 7}, {"b", 4096}, {"c", 9 * 4096}};
  const DiskLayout layout(extents, files, stripe);
  std::set<std::pair<int, int64_t>> places;
  for (int i = 0; i < 3; ++i)
    for (int64_t at = 0; at < extents[static_cast<size_t>(i)].bytes; at += kDiskBlock) {
      const DiskPlace place = layout.place(layout.address(i) + at);
      CHECK(places.emplace(place.file, place.offset).second);
      CHECK((place.file >= 0 && place.file < files));
      CHECK(place.offset % kDiskBlock == 0);
      CHECK(place.offset + kDiskBlock <= layout.bytes_of_each_file());
      CHECK(layout.together(layout.address(i) + at) >= kDiskBlock);
      CHECK(layout.place(layout.address(i) + at + 5).offset == place.offset + 5);
    }
}

TEST_CASE("bytes that lie together follow one another in one file") {
  const std::vector<DiskExtent> extents{{"a", 100 * kDiskBlock}};
  const DiskLayout layout(extents, 3, 4 * kDiskBlock);
  for (int64_t address = 0; address < 100 * kDiskBlock; address += 1111) {
    const int64_t bytes = layout.together(address);
    const DiskPlace first = layout.place(address), last = layout.place(address + bytes - 1);
    CHECK(first.file == last.file);
    CHECK(last.offset == first.offset + bytes - 1);
    CHECK(layout.place(address + bytes).file != first.file);
  }
}

TEST_CASE("a size below zero or a stripe of odd bytes is a mistake of the caller") {
  const std::vector<DiskExtent> negative{{"a", -1}}, good{{"a", 1}};
  CHECK_THROWS_AS(DiskLayout(negative, 1, 4096), InternalError);
  CHECK_THROWS_AS(DiskLayout(good, 1, 4097), InternalError);
  CHECK_THROWS_AS(DiskLayout(good, 0, 4096), InternalError);
}

}  // namespace
}  // namespace dstrain
