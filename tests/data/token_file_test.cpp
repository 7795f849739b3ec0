// Data of format `bin`: token files of nanoGPT and llm.c, and how `auto` distinguishes them from text.
#include <cstring>

#include "runtime/data/array_source.h"
#include "runtime/data/token_windows.h"
#include "tests/data/dataset_fixture.h"

namespace dstrain {
namespace {

using Catch::Contains;
using Ids = std::vector<int32_t>;

template <class T>
std::string packed(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string header(int32_t magic, int32_t version, int32_t tokens) {
  std::vector<int32_t> words(256);
  words[0] = magic;
  words[1] = version;
  words[2] = tokens;
  return packed(words);
}

Job token_job(const std::string& path, int64_t block_size, int64_t vocab_size) {
  Job job = text_job(path, block_size);
  job.model.set("vocab_size", vocab_size);
  return job;
}

TEST_CASE("a bare .bin file is uint16 tokens") {
  TempDir dir;
  const std::vector<uint16_t> ids = {5, 50256, 7, 1, 2};
  const auto data = open_dataset(token_job(dir.write("train.bin", packed(ids)), 4, 50257));
  const Samples s = read_samples(*data, Split::train, 0, 1, 4);
  CHECK(s.inputs == Ids{5, 50256, 7, 1});
  CHECK(s.targets == Ids{50256, 7, 1, 2});
  CHECK(data->vocabulary().size == 50257);
  CHECK(data->vocabulary().format == DataFormat::tokens);
}

TEST_CASE("llm.c's header is recognised by its magic, with uint16 and uint32 tokens") {
  TempDir dir;
  const std::vector<uint16_t> narrow = {1, 2, 3, 65535, 5};
  const std::vector<uint32_t> wide = {1, 2, 128255, 4, 5};
  // By content, whatever the name.
  const auto gpt2 = open_dataset(
      token_job(dir.write("a.tokens", header(20240520, 1, 5) + packed(narrow)), 4, 65536));
  CHECK(read_samples(*gpt2, Split::train, 0, 1, 4).targets == Ids{2, 3, 65535, 5});
  const auto llama =
      open_dataset(token_job(dir.write("b.bin", header(20240801, 7, 5) + packed(wide)), 4, 128256));
  CHECK(read_samples(*llama, Split::train, 0, 1, 4).inputs == Ids{1, 2, 128255, 4});
}

TEST_CASE("a header that its file does not bear out is an error with both numbers") {
  TempDir dir;
  const std::string ids = packed(std::vector<uint16_t>{1, 2, 3, 4, 5});
  const auto error = [&](const std::string& bytes) {
    return open_error(token_job(dir.write("x.bin", bytes), 2, 100));
  };
  CHECK_THAT(error(header(20240520, 1, 6) + ids),
             Contains("6 tokens") && Contains("1036") && Contains("1034"));
  CHECK_THAT(error(header(20240520, 1, 4) + ids), Contains("1032") && Contains("1034"));
  CHECK_THAT(error(header(20240520, 1, -1) + ids), Contains("-1 tokens"));
  CHECK_THAT(error(header(20240801, 7, 5) + ids), Contains("5 tokens of 4 bytes"));
  CHECK_THAT(error(header(20240520, 3, 5) + ids), Contains("version 3") && Contains("expected 1"));
  CHECK_THAT(error(header(20240520, 1, 5).substr(0, 100)), Contains("cut short"));
  CHECK_THAT(error(ids + "x"), Contains("11 bytes, an odd number"));
}

TEST_CASE("token files need a vocabulary size") {
  TempDir dir;
  const std::string path = dir.write("x.bin", packed(std::vector<uint16_t>{1, 2, 3}));
  CHECK_THAT(open_error(token_job(path, 2, 0)), Contains("dstrain.model.vocab_size"));
}

TEST_CASE("an id outside the vocabulary names file, byte and the size that is needed") {
  TempDir dir;
  std::vector<uint16_t> ids(1000, 3);
  ids[700] = 64;
  ids[900] = 80;
  const std::string bare = dir.write("x.bin", packed(ids));
  CHECK_THAT(open_error(token_job(bare, 10, 64)),
             Contains("x.bin") && Contains("token id 64 at byte 1400 (token 700)") &&
                 Contains("vocab_size is 64") && Contains("at least 81"));
  CHECK(open_error(token_job(bare, 10, 81)) == "no error");
  const std::string with_header = dir.write("y.bin", header(20240520, 1, 1000) + packed(ids));
  CHECK_THAT(open_error(token_job(with_header, 10, 64)), Contains("at byte 2424 "));
  // Ids that would be negative as int32 are large, not small.
  std::vector<uint32_t> wide(100, 3);
  wide[50] = 0xffffffff;
  CHECK_THAT(
      open_error(token_job(dir.write("z.bin", header(20240801, 7, 100) + packed(wide)), 10, 64)),
      Contains("token id 4294967295 at byte 1224 "));
}

TEST_CASE("ids that the run does not touch are not looked at") {
  TempDir dir;
  std::vector<uint16_t> ids(100, 3);
  ids[95] = 999;
  Job job = token_job(dir.write("x.bin", packed(ids)), 4, 64);
  job.data.val_fraction = 0.1;
  job.eval_samples = 1;
  CHECK(open_error(job) == "no error");
  job.eval_samples = 2;
  CHECK_THAT(open_error(job), Contains("token id 999 at byte 190"));
  job.data.val_fraction = 0;
  CHECK_THAT(open_error(job), Contains("token id 999 at byte 190"));
}

TEST_CASE("a bad id deep in a file of millions is found") {
  TempDir dir;
  std::vector<uint16_t> ids(3'000'001, 3);
  ids[2'999'999] = 77;
  const std::string path = dir.write("x.bin", packed(ids));
  CHECK_THAT(open_error(token_job(path, 100, 77)), Contains("token 2999999"));
  CHECK(open_error(token_job(path, 100, 78)) == "no error");
}

TEST_CASE("tokens that FILE.targets has 0 for have no targets, in samples and in windows") {
  TempDir dir;
  const std::string bytes =
      GENERATE(packed(std::vector<uint16_t>{1, 2, 3, 4, 5, 6, 7}),
               header(20240520, 1, 7) + packed(std::vector<uint16_t>{1, 2, 3, 4, 5, 6, 7}),
               header(20240801, 7, 7) + packed(std::vector<uint32_t>{1, 2, 3, 4, 5, 6, 7}));
  const std::string path = dir.write("x.bin", bytes);
  const auto all = open_dataset(token_job(path, 3, 10));
  dir.write("x.bin.targets", packed(std::vector<uint8_t>{1, 0, 1, 1, 0, 1, 0}));
  const auto some = open_dataset(token_job(path, 3, 10));
  const Samples s = read_samples(*some, Split::train, 0, 2, 3);
  CHECK(s.inputs == Ids{1, 2, 3, 4, 5, 6});
  CHECK(s.targets == Ids{-1, 3, 4, -1, 6, -1});
  CHECK(some->fingerprint() != all->fingerprint());
  const TokenWindows windows(open_token_file(std::make_unique<DataFile>(path)), 4);
  const Samples w = read_samples(windows, Split::validation, 0, 2, 4);
  CHECK(w.inputs == Ids{1, 2, 3, 4, 5, 6, 7, 0});
  CHECK(w.targets == Ids{-1, 3, 4, -1, 6, -1, -1, -1});
}

TEST_CASE("FILE.targets of another file is an error") {
  TempDir dir;
  const std::string path = dir.write("x.bin", packed(std::vector<uint16_t>{1, 2, 3, 4}));
  dir.write("x.bin.targets", "abc");
  CHECK_THAT(open_error(token_job(path, 2, 10)),
             Contains("x.bin.targets has 3 bytes") && Contains("x.bin has 4 tokens"));
}

}  // namespace
}  // namespace dstrain
