#include "runtime/core/formats/zip_archive.h"

#include <catch2/catch.hpp>
#include <limits>

#include "runtime/core/error.h"
#include "tests/support/temp_dir.h"
#include "tests/support/zip_file.h"

namespace dstrain {
namespace {

using Catch::Contains;

constexpr ZipOrigin kExport{"the exported model", "torch.export.save", "do not pack it anew"};

// Returns what is wrong with an archive of these bytes; empty if nothing is.
std::string fault_of(const std::string& bytes) {
  const TempDir dir;
  try {
    const ZipArchive archive(dir.write("a.pt2", bytes), kExport);
  } catch (const UserError& e) {
    CHECK_THAT(e.what(), Contains("a.pt2"));
    return e.what();
  }
  return {};
}

TEST_CASE("a zip archive has its entries by name, with the place of their bytes in the file") {
  const TempDir dir;
  const bool in64 = GENERATE(false, true);
  ZipFile::Said said;
  said.extra64 = in64;
  const std::string path = dir.write("a.pt2", ZipFile()
                                                  .add("m/b", "second", said)
                                                  .add("m/a", "1st", said)
                                                  .add("m/c/", "")
                                                  .add("m/empty", "")
                                                  .bytes(in64));
  const ZipArchive archive(path, kExport);
  REQUIRE(archive.entries().size() == 3);
  CHECK(archive.entries()[0].name == "m/a");
  CHECK(archive.find("m/none") == nullptr);
  const ZipEntry* b = archive.find("m/b");
  REQUIRE(b != nullptr);
  CHECK(b->offset % 64 == 0);
  CHECK(archive.read(*b, 6) == "second");
  CHECK(bytes_of_file(path).substr(static_cast<size_t>(b->offset), 6) == "second");
  CHECK(archive.find("m/empty")->bytes == 0);
  char text[3] = {};
  archive.read_at(*b, text, 3, 2);
  CHECK(std::string(text, 3) == "con");
  CHECK_THROWS_WITH(archive.read(*b, 5), Contains("has 6 bytes, expected at most 5"));
  CHECK_THROWS_WITH(archive.read_at(*b, text, 3, 4), Contains("has 6 bytes"));
}

TEST_CASE("a zip archive may end with a comment") {
  std::string bytes = ZipFile().add("m/a", "1").bytes();
  bytes.replace(bytes.size() - 2, 2, ZipFile::number(3, 2));
  CHECK(fault_of(bytes + "end").empty());
  CHECK_THAT(fault_of(bytes + "end of another length"),
             Contains("does not end as a zip file does"));
}

TEST_CASE("what is not a zip archive, or only its beginning, is refused") {
  const std::string bytes = ZipFile().add("m/a", "12345").add("m/b", "6").bytes();
  for (size_t n = 0; n < bytes.size(); ++n) CHECK(!fault_of(bytes.substr(0, n)).empty());
  CHECK_THAT(fault_of("# a text"), Contains("is not an archive of torch.export.save"));
  CHECK_THROWS_WITH(ZipArchive("/none.pt2", kExport), Contains("torch.export.save writes one"));
}

TEST_CASE("a zip archive with entries that are compressed, encrypted or elsewhere is refused") {
  const auto with = [](const ZipFile::Said& said) {
    return fault_of(ZipFile().add("m/first", "0123456789").add("m/a", "12345", said).bytes());
  };
  CHECK(with({}).empty());
  CHECK_THAT(with({.method = 8}), Contains("\"m/a\" is compressed (method 8)"));
  CHECK_THAT(with({.flags = 0x809}), Contains("\"m/a\" is encrypted"));
  CHECK_THAT(with({.packed = 4}), Contains("has two sizes, 4 and 5 bytes"));
  CHECK_THAT(with({.bytes = 1 << 20}), Contains("is stated to have 1048576 bytes"));
  CHECK_THAT(with({.bytes = 60}), Contains("reach into the directory"));
  CHECK_THAT(with({.local = 0}), Contains("overlaps the one before it"));
  CHECK_THAT(with({.local = 5}), Contains("overlaps the one before it"));
  CHECK_THAT(with({.local = 75}), Contains("does not begin at byte 75"));
  CHECK_THAT(with({.local_name = "m/b"}), Contains("has another name"));
  CHECK_THAT(with({.bytes = std::numeric_limits<int64_t>::max(), .extra64 = true}),
             Contains("is stated to have 9223372036854775807 bytes"));
}

TEST_CASE("a zip archive with sizes that overflow is refused") {
  for (const int64_t size : {int64_t{-1}, int64_t{-8}, std::numeric_limits<int64_t>::min()}) {
    ZipFile::Said said{.extra64 = true};
    std::string bytes = ZipFile().add("m/a", "12345", said).bytes();
    const size_t extra = bytes.rfind(ZipFile::number(5, 8) + ZipFile::number(5, 8));
    REQUIRE(extra != std::string::npos);
    bytes.replace(extra, 16, ZipFile::number(size, 8) + ZipFile::number(size, 8));
    CHECK_THAT(fault_of(bytes), Contains("is stated to have"));
  }
  CHECK_THAT(fault_of(ZipFile().add("m/a", "1").bytes(true, int64_t{1} << 62)),
             Contains("entries in a directory of"));
  CHECK_THAT(fault_of(ZipFile().add("m/a", "1").bytes(false, 9)), Contains("states 9 entries"));
  CHECK_THAT(fault_of(ZipFile().add("m/a", "1").add("m/b", "1").bytes(false, 3)),
             Contains("states 3 entries"));
  CHECK_THAT(fault_of(ZipFile().add("m/a", "1").add("m/b", "1").bytes(false, 1)),
             Contains("behind its 1 entries"));
}

TEST_CASE("a zip archive with names that lead elsewhere, or twice the same, is refused") {
  for (const char* name :
       {"/etc/passwd", "m/../../x", "..", "m//a", "./a", "m/.", "m\\a", "m/a\n", "\x01"})
    CHECK_THAT(fault_of(ZipFile().add(name, "1").bytes()), Contains("leads elsewhere"));
  CHECK_THAT(fault_of(ZipFile().add("", "1").bytes()), Contains("leads elsewhere"));
  CHECK(fault_of(ZipFile().add("m/..a", "1").add("m/\xc3\xa9", "1").bytes()).empty());
  CHECK_THAT(fault_of(ZipFile().add("m/a", "1").add("m/a", "2").bytes()),
             Contains("\"m/a\" occurs twice"));
}

}  // namespace
}  // namespace dstrain
