// The width of the ids of token files without a header.
#include "runtime/data/file/token_width.h"

#include "tests/data/dataset_fixture.h"

namespace dstrain {
namespace {

using Catch::Contains;

template <class Id>
std::string bytes_of(const std::vector<Id>& ids) {
  return {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(Id)};
}

// Ids 1 to `most`, of the given type.
template <class Id>
std::string counted_ids(int count, uint64_t most) {
  std::vector<Id> ids;
  for (int i = 0; i < count; ++i) ids.push_back(static_cast<Id>(uint64_t(i) * 7919 % most + 1));
  return bytes_of(ids);
}

struct Files {
  TempDir dir;
  TokenWidth width(const std::string& bytes, int64_t vocabulary,
                   TokenDtype given = TokenDtype::automatic) const {
    return bare_token_width(DataFile(dir.write("x.bin", bytes)),
                            {.given = given, .vocabulary = vocabulary});
  }
  std::string error(const std::string& bytes, int64_t vocabulary,
                    TokenDtype given = TokenDtype::automatic) const {
    try {
      width(bytes, vocabulary, given);
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  }
};

TEST_CASE("ids are uint32 where the upper halves are those of ids of the vocabulary") {
  const Files files;
  for (const int64_t vocabulary : {64, 65536, 65537, 128256, 1'000'000}) {
    CAPTURE(vocabulary);
    const auto most = static_cast<uint64_t>(vocabulary - 1);
    const TokenWidth wide = files.width(counted_ids<uint32_t>(400, most), vocabulary);
    CHECK(wide.bytes == 4);
    CHECK_THAT(wide.remark, Contains("read as uint32, because every second 16-bit word"));
    CHECK_THAT(wide.remark, !Contains("proves nothing"));
    const TokenWidth narrow =
        files.width(counted_ids<uint16_t>(400, std::min<uint64_t>(most, 65535)), vocabulary);
    CHECK(narrow.bytes == 2);
    CHECK(narrow.remark == "");
  }
  // One id whose upper half no id of the vocabulary has.
  std::vector<uint32_t> ids(400, 7);
  ids[300] = 3 << 16;
  CHECK(files.width(bytes_of(ids), 128256).bytes == 2);
  CHECK(files.width(bytes_of(ids), 200'000).bytes == 4);
  CHECK(files.width(counted_ids<uint16_t>(401, 60), 64).bytes == 2);  // half an id of uint32
}

TEST_CASE("where the words prove nothing the remark says what was taken, and which key decides") {
  const Files files;
  for (const std::string& bytes :
       {bytes_of(std::vector<uint16_t>{5, 0, 6, 0}), std::string(4000, '\0')}) {
    const TokenWidth width = files.width(bytes, 64);
    CHECK(width.bytes == 4);
    CHECK_THAT(width.remark, Contains("proves nothing") && Contains("dstrain.data.token_dtype"));
    CHECK(files.width(bytes, 64, TokenDtype::uint16).bytes == 2);
    CHECK(files.width(bytes, 64, TokenDtype::uint16).remark == "");
  }
  // With this vocabulary, text of uint16 has no word that an id could not have in its upper half.
  const std::string small = counted_ids<uint16_t>(4000, 3);
  CHECK_THAT(files.width(small, 260'000).remark, Contains("proves nothing"));
  CHECK(files.width(small, 64).bytes == 2);
}

TEST_CASE("files beside a token file say how many tokens it has") {
  const Files files;
  const std::string bytes(400, '\0');
  const auto documents = [&](uint64_t tokens) {
    files.dir.write("x.bin.documents", bytes_of(std::vector<uint64_t>{0, tokens}));
    return files.width(bytes, 64);
  };
  CHECK(documents(200).bytes == 2);
  CHECK(documents(200).remark == "");
  CHECK(documents(100).bytes == 4);
  CHECK_THAT(documents(100).remark, Contains("by the file beside it"));
  CHECK_THAT(files.error(bytes, 64, TokenDtype::uint16), Contains("its 100 tokens are uint32"));
  CHECK_THAT(documents(77).remark, Contains("proves nothing"));
  files.dir.write("x.bin.documents", "");
  files.dir.write("x.bin.targets", std::string(200, '\1'));
  CHECK(files.width(bytes, 64).bytes == 2);
  CHECK_THAT(files.error(bytes, 64, TokenDtype::uint32), Contains("its 200 tokens are uint16"));
}

TEST_CASE("64-bit ids, and sizes that fit no width, are errors") {
  const Files files;
  CHECK_THAT(files.error(counted_ids<uint64_t>(100, 60), 64),
             Contains("looks like 64-bit ids") && Contains("dstrain.data.token_dtype"));
  CHECK_THAT(files.error(counted_ids<uint64_t>(100, 100'000), 128256), Contains("64-bit ids"));
  CHECK(files.width(counted_ids<uint64_t>(100, 60), 64, TokenDtype::uint32).bytes == 4);
  CHECK_THAT(files.error("abc", 64), Contains("3 bytes, an odd number"));
  CHECK_THAT(files.error("abcdef", 64, TokenDtype::uint32), Contains("no multiple of 4"));
}

TEST_CASE("samples of ids of uint32 are those of uint16, and the data are others") {
  TempDir dir;
  int files = 0;  // each has a name of its own, as all stay mapped
  const auto open = [&](const std::string& bytes, TokenDtype given = TokenDtype::automatic) {
    Job job = text_job(dir.write(std::to_string(++files) + ".bin", bytes), 8);
    job.model.set("vocab_size", int64_t{64});
    job.data.token_dtype = given;
    return open_dataset(job);
  };
  const auto narrow = open(counted_ids<uint16_t>(400, 60)),
             wide = open(counted_ids<uint32_t>(400, 60)),
             misread = open(counted_ids<uint32_t>(400, 60), TokenDtype::uint16);
  CHECK(wide->samples(Split::train) == narrow->samples(Split::train));
  const bool same = read_samples(*wide, Split::train, 0, 49, 8).targets ==
                    read_samples(*narrow, Split::train, 0, 49, 8).targets;
  CHECK(same);
  CHECK_THAT(wide->summary(), Contains("2.bin is read as uint32"));
  CHECK(wide->fingerprint() != misread->fingerprint());
  Job job = text_job(dir.write("x.bin", counted_ids<uint32_t>(400, 80)), 8);
  job.model.set("vocab_size", int64_t{64});
  CHECK_THAT(open_error(job),
             Contains("or say with dstrain.data.token_dtype that ids are not the uint32"));
}

}  // namespace
}  // namespace dstrain
