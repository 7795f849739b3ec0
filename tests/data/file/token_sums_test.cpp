// Checksums of token files: their text, and pieces that are compared when they are first read.
#include "runtime/data/file/token_sums.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include "runtime/data/array_source.h"
#include "tests/data/dataset_fixture.h"

namespace dstrain {
namespace {

using Catch::Contains;

// A token file of two pieces and a bit, of zeros but for the ids that are written, with the files that belong to it.
struct LargeFile {
  static constexpr int64_t kIds = kPieceBytes + 50;  // of two bytes
  TempDir dir;
  std::string path = dir.write("x.bin", "");
  LargeFile() {
    std::filesystem::resize_file(path, 2 * kIds);
    const std::vector<uint64_t> documents = {0, static_cast<uint64_t>(kIds)};
    dir.write("x.bin.documents", {reinterpret_cast<const char*>(documents.data()), 16});
    dir.write("x.bin.sums", sums_text(sums_of_token_file(path, 1)));
  }
  void set(int64_t id) const {
    const int file = ::open(path.c_str(), O_WRONLY);
    const uint16_t value = 5;
    REQUIRE(::pwrite(file, &value, 2, 2 * id) == 2);
    ::close(file);
  }
};

TEST_CASE("a piece that is damaged is found when it is first read, and no other one is read") {
  const LargeFile file;
  const auto read = [](const TokenSource& source, int64_t begin) {
    std::vector<int32_t> ids(8), labels(8);
    source.read(begin, 8, ids.data(), labels.data());
    return ids[0];
  };
  const auto open = [&] { return open_token_file(std::make_unique<DataFile>(file.path)); };
  const int64_t second = kPieceBytes / 2;  // the first id of the second piece
  file.set(second + 100);
  const auto source = open();
  source->check_ids(0, LargeFile::kIds, {.size = 10, .key = "k"});  // known without reading
  CHECK(source->vocabulary().size == 1);
  CHECK(read(*source, 0) == 0);
  CHECK(read(*source, 2 * second) == 0);  // the third piece
  for (const int64_t begin : {second - 8, second, second + 1000, 2 * second - 9})
    CHECK_THROWS_WITH(read(*source, begin), Contains("x.bin is damaged: its bytes 67108864 to "
                                                     "134217727 do not have the checksum"));
  // What was compared is not compared again: a file must not change while a run reads it.
  file.set(50);
  CHECK(read(*source, 0) == 0);
  CHECK_THROWS_WITH(read(*open(), 0), Contains("its bytes 0 to 67108863"));
}

TEST_CASE("files beside a token file are compared, and one that was not there is an error") {
  TempDir dir;
  const std::string path = dir.write("x.bin", std::string(80, '\1'));
  const auto opens = [&](const std::string& packing) {
    Job job = text_job(path, 8);
    job.model.set("vocab_size", int64_t{1000});
    job.data.packing = packing == "pack" ? Packing::pack : Packing::none;
    try {
      open_dataset(job);
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const std::vector<uint64_t> documents = {0, 20, 40};
  std::string starts{reinterpret_cast<const char*>(documents.data()), 24};
  dir.write("x.bin.documents", starts);
  dir.write("x.bin.targets", std::string(40, '\1'));
  dir.write("x.bin.sums", sums_text(sums_of_token_file(path, 258)));
  CHECK(opens("pack") == "no error");
  starts[8] = 21;
  dir.write("x.bin.documents", starts);
  CHECK(opens("none") == "no error");
  CHECK_THAT(opens("pack"), Contains("x.bin.documents is damaged"));
  dir.write("x.bin.targets", std::string(39, '\1') + '\0');
  CHECK_THAT(opens("none"), Contains("x.bin.targets is damaged"));
  std::filesystem::remove(dir.path() + "/x.bin.targets");
  CHECK_THAT(opens("none"), Contains("x.bin.targets was there when"));
  dir.write("x.bin", std::string(82, '\1'));
  dir.write("x.bin.targets", std::string(41, '\1'));
  CHECK_THAT(opens("none"), Contains("x.bin has 82 bytes, and its checksums are of one of 80"));
  dir.write("x.bin.sums", "{}");
  CHECK_THAT(opens("none"), Contains("x.bin.sums does not hold the checksums of"));
}

TEST_CASE("the text of checksums reads back, and no other text is one") {
  TempDir dir;
  const std::string path = dir.write("x.bin", std::string(100, 'a'));
  dir.write("x.bin.documents", std::string(16, 'b'));
  TokenSums sums = sums_of_token_file(path, 77);
  CHECK(parse_sums(sums_text(sums)) == sums);
  sums.targets = sums.tokens;
  const std::string text = sums_text(sums);
  CHECK(parse_sums(text) == sums);
  for (const std::string other : {"", "{", "[]", "{}", "null"}) CHECK(!parse_sums(other));
  CHECK(!parse_sums(text.substr(0, text.size() / 2)));
  std::string fewer = text;
  fewer.replace(fewer.find("\"bytes\":100"), 11, "\"bytes\":0  ");
  CHECK(!parse_sums(fewer));
}

}  // namespace
}  // namespace dstrain
