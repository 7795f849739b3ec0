// Data of several files, a validation file of its own, samples shorter than the model's context, and a file in windows.
#include <algorithm>
#include <numeric>

#include "runtime/data/file/data_files.h"
#include "runtime/data/token_windows.h"
#include "tests/data/dataset_fixture.h"

namespace dstrain {
namespace {

using Catch::Contains;
using Ids = std::vector<int32_t>;

// Returns the bytes of a bare token file of the ids [first, first + count).
std::string tokens(int first, int count) {
  std::string bytes;
  for (int id = first; id < first + count; ++id) {
    bytes += static_cast<char>(id % 256);
    bytes += static_cast<char>(id / 256);
  }
  return bytes;
}

Job files_job(std::vector<std::string> paths, int64_t block_size) {
  Job job = text_job("", block_size);
  job.model.set("vocab_size", 1000);
  job.data.paths = std::move(paths);
  return job;
}

TEST_CASE("samples of several files do not cross them, and are counted through all") {
  TempDir dir;
  // 10, 4 and 9 tokens: 2 samples of 4, none, 2.
  const Job job = files_job({dir.write("b.bin", tokens(0, 10)), dir.write("a.bin", tokens(100, 4)),
                             dir.write("c.bin", tokens(200, 9))},
                            4);
  const auto data = open_dataset(job);
  CHECK(data->samples(Split::train) == 4);
  const Samples s = read_samples(*data, Split::train, 0, 5, 4);
  CHECK(s.inputs ==
        Ids{0, 1, 2, 3, 4, 5, 6, 7, 200, 201, 202, 203, 204, 205, 206, 207, 0, 1, 2, 3});
  CHECK(s.targets ==
        Ids{1, 2, 3, 4, 5, 6, 7, 8, 201, 202, 203, 204, 205, 206, 207, 208, 1, 2, 3, 4});
  CHECK(data->vocabulary().size == 209);
  CHECK(data->files(Split::train).bytes == 46);
  CHECK(data->summary() ==
        "3 files (b.bin, a.bin, c.bin): 23 tokens, ids up to 208; 4 training samples of 4 (1 file "
        "too short for one), none for validation, whose part has 0 tokens and needs 5");
}

TEST_CASE("the samples of several files are shuffled as one, each once in an epoch") {
  TempDir dir;
  Job job = files_job({dir.write("a.bin", tokens(0, 61)), dir.write("b.bin", tokens(100, 82))}, 4);
  job.data.random_order = true;
  const auto data = open_dataset(job);
  REQUIRE(data->samples(Split::train) == 35);
  const Ids first = read_samples(*data, Split::train, 0, 35, 4).inputs;
  Ids sorted = first, expected(140);
  std::sort(sorted.begin(), sorted.end());
  std::iota(expected.begin(), expected.begin() + 60, 0);
  std::iota(expected.begin() + 60, expected.end(), 100);
  CHECK(sorted == expected);
  // Both files are in the first half.
  const auto half = first.begin() + 68;
  CHECK(std::any_of(first.begin(), half, [](int32_t id) { return id < 100; }));
  CHECK(std::any_of(first.begin(), half, [](int32_t id) { return id >= 100; }));
}

TEST_CASE("the end of several files is for validation, a file that it cuts in both parts") {
  TempDir dir;
  Job job = files_job({dir.write("a.bin", tokens(0, 20)), dir.write("b.bin", tokens(100, 12))}, 3);
  job.data.val_fraction = 0.5;  // 16 of 32: the last 4 of a, all of b
  const auto data = open_dataset(job);
  CHECK(data->samples(Split::train) == 5);
  CHECK(data->samples(Split::validation) == 4);
  const Samples s = read_samples(*data, Split::validation, 0, 4, 3);
  CHECK(s.inputs == Ids{16, 17, 18, 100, 101, 102, 103, 104, 105, 106, 107, 108});
}

TEST_CASE("a pattern names its files in the order of their names") {
  TempDir dir;
  for (const char* name : {"p_10.bin", "p_2.bin", "p_1.bin", "q.bin"})
    dir.write(name, tokens(0, 9));
  const std::vector<std::string> expected{dir / "q.bin", dir / "p_1.bin", dir / "p_10.bin",
                                          dir / "p_2.bin"};
  CHECK(data_files({dir / "q.bin", dir / "p_*.bin"}) == expected);
  CHECK(open_dataset(files_job({dir / "p_*.bin"}, 4))->samples(Split::train) == 6);
  CHECK(first_missing({dir / "q.bin", dir / "p_?.bin"}).empty());
  CHECK(first_missing({dir / "q.bin", dir / "r*.bin"}) == dir / "r*.bin");
  CHECK_THAT(open_error(files_job({dir / "r*.bin"}, 4)), Contains("no file matches the pattern"));
  // A file whose name looks like a pattern is itself.
  const std::string odd = dir.write("p_[1].bin", tokens(7, 5));
  CHECK(data_files({odd}) == std::vector<std::string>{odd});
  CHECK(names_of_files(std::vector<std::string>(7, "x/a.bin")) ==
        "7 files (a.bin, a.bin, a.bin, a.bin, a.bin and 2 more)");
}

TEST_CASE("files of several kinds, and several texts, are refused") {
  TempDir dir;
  const std::string text = dir.write("a.txt", "hello world"), more = dir.write("b.txt", "hello"),
                    ids = dir.write("c.bin", tokens(0, 9));
  CHECK_THAT(open_error(files_job({text, ids}, 4)),
             Contains("c.bin holds token ids") && Contains("a.txt holds text"));
  CHECK_THAT(open_error(files_job({text, more}, 4)),
             Contains("2 files of text") && Contains("join them"));
  Job bytes = files_job({text, more}, 4);
  bytes.data.format = DataFormat::bytes;
  CHECK(open_dataset(bytes)->samples(Split::train) == 3);
  CHECK_THAT(open_error(files_job({ids, dir.write("d.bin", tokens(999, 9))}, 4)),
             Contains("d.bin has token id 1000"));
}

TEST_CASE("other files, and another order of the same, have another fingerprint") {
  TempDir dir;
  const std::string a = dir.write("a.bin", tokens(0, 9)), b = dir.write("b.bin", tokens(1, 9));
  const auto fingerprint = [](std::vector<std::string> paths) {
    return open_dataset(files_job(std::move(paths), 4))->fingerprint();
  };
  CHECK(fingerprint({a, b}) == fingerprint({a, b}));
  CHECK(fingerprint({a, b}) != fingerprint({b, a}));
  CHECK(fingerprint({a}) != fingerprint({a, a}));
}

TEST_CASE("a validation file leaves all other data for training") {
  TempDir dir;
  Job job = text_job(dir.write("t.txt", "abcdefghijk"), 4);
  job.data.val_path = dir.write("v.txt", "kjihgfedc");
  const auto data = open_dataset(job);
  CHECK(data->samples(Split::train) == 2);
  CHECK(data->samples(Split::validation) == 2);
  CHECK(read_samples(*data, Split::validation, 0, 2, 4).inputs == Ids{10, 9, 8, 7, 6, 5, 4, 3});
  CHECK_THAT(data->summary(), Contains(", 2 for validation from ") && Contains("v.txt"));
  CHECK(data->files(Split::validation).paths == std::vector<std::string>{job.data.val_path});
  CHECK(data->validation_fingerprint() != 0);
  job.data.val_path = dir.write("w.txt", "abcdefghijklm");
  CHECK_THAT(open_error(job), Contains("w.txt has 2 characters of 13") &&
                                  Contains("in the vocabulary of the training data"));
  job.data.val_path = dir.write("s.txt", "abcd");
  CHECK_THAT(open_error(job), Contains("the validation file ") && Contains("s.txt is too short"));
  job.data.val_path = dir.write("v.bin", tokens(0, 9));
  CHECK_THAT(open_error(job), Contains("v.bin holds token ids"));
}

TEST_CASE("samples may have fewer tokens than the model's context") {
  TempDir dir;
  Job job = text_job(dir.write("t.txt", "hello world"), 8);
  job.model.set_seq_len(3);
  const auto data = open_dataset(job);
  CHECK(data->samples(Split::train) == 3);
  CHECK(read_samples(*data, Split::train, 1, 1, 3).targets == Ids{5, 0, 7});
  job.data.paths = {dir.write("s.txt", "hel")};
  CHECK_THAT(open_error(job), Contains("one sample of seq_len 3 needs 4") &&
                                  Contains("a smaller dstrain.data.seq_len"));
}

TEST_CASE("windows cover a whole file, the last one short") {
  TempDir dir;
  const auto windows = [&dir](int count, int64_t length) {
    return TokenWindows(open_for_model(dir.write("w.bin", tokens(5, count)), files_job({}, 4),
                                       {DataFormat::tokens, {}, 1000}),
                        length);
  };
  const TokenWindows some = windows(11, 4);
  CHECK(some.samples(Split::validation) == 3);
  const Samples s = read_samples(some, Split::validation, 0, 4, 4);
  CHECK(s.inputs == Ids{5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 0, 0, 0, 0});
  CHECK(s.targets == Ids{6, 7, 8, 9, 10, 11, 12, 13, 14, 15, -1, -1, -1, -1, -1, -1});
  CHECK(windows(9, 4).samples(Split::validation) == 2);
  CHECK(windows(8, 4).samples(Split::validation) == 2);
  CHECK(read_samples(windows(4, 4), Split::validation, 0, 1, 4).inputs == Ids{5, 6, 7, 8});
}

TEST_CASE("the bytes of tokens are those of their text, and unknown of token ids") {
  TempDir dir;
  const std::string path = dir.write("t.txt",
                                     "\xef\xbb\xbf"
                                     "a\xc3\xa9\xe2\x82\xacz");
  const auto source = [&](const Vocabulary& vocabulary, DataFormat format) {
    return open_for_model(path, text_job("", 4, format), vocabulary);
  };
  const Vocabulary characters{DataFormat::characters, {'a', 'z', 0xe9, 0x20ac}, 4};
  CHECK(source(characters, DataFormat::automatic)->bytes_of(1, 4) == 6);
  CHECK(source({DataFormat::bytes, {}, 256}, DataFormat::bytes)->bytes_of(1, 10) == 9);
  Job job = files_job({}, 4);
  const auto ids =
      open_for_model(dir.write("w.bin", tokens(5, 3)), job, {DataFormat::tokens, {}, 9});
  CHECK_FALSE(ids->bytes_of(1, 3).has_value());
  CHECK_THROWS_WITH(open_for_model(path, job, {DataFormat::tokens, {}, 9}),
                    Contains("holds text, and the model was trained on token ids"));
}

}  // namespace
}  // namespace dstrain
