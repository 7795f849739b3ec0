// Data of the formats `char` and `byte`.
#include <numeric>

#include "tests/data/dataset_fixture.h"

namespace dstrain {
namespace {

using Ids = std::vector<int32_t>;

TEST_CASE("char ids are positions among the sorted characters; targets are shifted by one") {
  TempDir dir;
  const auto data = open_dataset(text_job(dir.write("t.txt", "hello world"), 4));
  CHECK(data->vocabulary().characters ==
        std::vector<uint32_t>{' ', 'd', 'e', 'h', 'l', 'o', 'r', 'w'});
  CHECK(data->vocabulary().size == 8);
  CHECK(data->samples(Split::train) == 2);
  const Samples s = read_samples(*data, Split::train, 0, 2, 4);
  CHECK(s.inputs == Ids{3, 2, 4, 4, 5, 0, 7, 5});
  CHECK(s.targets == Ids{2, 4, 4, 5, 0, 7, 5, 6});
}

TEST_CASE("the vocabulary is that of the whole file, the validation part included") {
  TempDir dir;
  Job job = text_job(dir.write("t.txt", "aaaaaaaaaaaaaaaaaazy"), 4);
  job.data.val_fraction = 0.1;
  CHECK(open_dataset(job)->vocabulary().size == 3);
}

TEST_CASE("characters of one to four bytes are one id each") {
  TempDir dir;
  const std::string text = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z";  // a e-acute euro smile z
  const auto data = open_dataset(text_job(dir.write("t.txt", text), 4));
  CHECK(data->vocabulary().characters == std::vector<uint32_t>{'a', 'z', 0xe9, 0x20ac, 0x1f600});
  const Samples s = read_samples(*data, Split::train, 0, 1, 4);
  CHECK(s.inputs == Ids{0, 2, 3, 4});
  CHECK(s.targets == Ids{2, 3, 4, 1});
}

TEST_CASE("a long text of mixed characters reads the same as one decoded from its start") {
  TempDir dir;
  const std::vector<std::string> pieces = {"a",  "\xc3\xa9",        "b", "\xe2\x82\xac",
                                           "\n", "\xf0\x9f\x98\x80"};
  std::string text;
  std::vector<size_t> kinds;
  // Long ASCII stretches too, so that both paths of the scan and all borders of its blocks are met.
  for (uint32_t i = 0, x = 1; text.size() < 5'000'000; ++i) {
    x = x * 1664525 + 1013904223;
    const size_t kind = (i / 3000) % 3 == 1 ? 0 : (x >> 16) % pieces.size();
    text += pieces[kind];
    kinds.push_back(kind);
  }
  constexpr int64_t kBlock = 777;
  const auto data = open_dataset(text_job(dir.write("t.txt", text), kBlock));
  const int64_t samples = data->samples(Split::train);
  REQUIRE(samples == (static_cast<int64_t>(kinds.size()) - 1) / kBlock);
  const Ids id_of_kind = {1, 3, 2, 4, 0, 5};
  for (int64_t i = 0; i < samples; ++i) {
    const Samples s = read_samples(*data, Split::train, i, 1, kBlock);
    bool same = true;
    for (int64_t t = 0; t < kBlock; ++t) {
      const auto at = static_cast<size_t>(i * kBlock + t), to = static_cast<size_t>(t);
      same = same && s.inputs[to] == id_of_kind[kinds[at]] &&
             s.targets[to] == id_of_kind[kinds[at + 1]];
    }
    CAPTURE(i);
    REQUIRE(same);
  }
}

TEST_CASE("CRLF line ends, tabs and, where they are asked for, NUL are characters like any other") {
  TempDir dir;
  const std::string text("x\r\n\t\0yz", 7);
  const auto data = open_dataset(text_job(dir.write("t.txt", text), 6, DataFormat::characters));
  CHECK(data->vocabulary().characters == std::vector<uint32_t>{0, '\t', '\n', '\r', 'x', 'y', 'z'});
  CHECK(read_samples(*data, Split::train, 0, 1, 6).inputs == Ids{4, 3, 2, 1, 0, 5});
}

TEST_CASE("invalid UTF-8 is an error that names the byte offset, wherever it stands") {
  TempDir dir;
  const std::string valid(3'000'000, 'a');
  const auto error_at = [&](const std::string& text) {
    return open_error(text_job(dir.write("t.txt", text), 4));
  };
  for (const std::string bad :
       {"\xff", "\x80", "\xc0\xaf", "\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe0\x80\x80",
        "\xf0\x80\x80\x80", "\xe2\x82"}) {
    // Around the borders of blocks (4096) and of chunks (2^20).
    for (const size_t at : {size_t{0}, size_t{1}, size_t{63}, size_t{4095}, (size_t{1} << 20) - 2,
                            (size_t{1} << 20) - 1, size_t{1} << 20, valid.size()}) {
      std::string text = valid;
      text.insert(at, bad);
      CAPTURE(at, bad.size());
      CHECK_THAT(error_at(text), Catch::Contains(fmt::format("at offset {} ", at)) &&
                                     Catch::Contains("not UTF-8") && Catch::Contains("t.txt") &&
                                     Catch::Contains("\"byte\""));
    }
  }
  // A continuation byte behind a character that crosses a border.
  std::string text = valid;
  text.insert((size_t{1} << 20) - 1, "\xc3\xa9\x80");
  CHECK_THAT(error_at(text), Catch::Contains(fmt::format("at offset {} ", (size_t{1} << 20) + 1)));
  // The first of several is named.
  text = valid + "\xff" + valid + "\xff";
  CHECK_THAT(error_at(text), Catch::Contains("at offset 3000000 "));
}

TEST_CASE("a four-byte character across every position of a border is one character") {
  TempDir dir;
  for (size_t back = 0; back <= 4; ++back) {
    std::string text((size_t{1} << 20) - back, 'a');
    text += "\xf0\x9f\x98\x80" + std::string(5000, 'b');
    const auto data = open_dataset(text_job(dir.write("t.txt", text), 5000));
    const auto characters = static_cast<int64_t>(text.size()) - 3;
    CHECK(data->samples(Split::train) == (characters - 1) / 5000);
    const int64_t last = data->samples(Split::train) - 1;
    const Samples s = read_samples(*data, Split::train, last, 1, 5000);
    const auto smile = (int64_t{1} << 20) - static_cast<int64_t>(back) - last * 5000;
    CHECK(s.inputs[static_cast<size_t>(smile)] == 2);
    CHECK(s.inputs[static_cast<size_t>(smile) - 1] == 0);
    CHECK(s.inputs[static_cast<size_t>(smile) + 1] == 1);
  }
}

TEST_CASE("byte data takes every byte as it is, with a vocabulary of 256") {
  TempDir dir;
  std::string all(256, '\0');
  std::iota(all.begin(), all.end(), '\0');
  const auto data = open_dataset(text_job(dir.write("t.dat", all), 255, DataFormat::bytes));
  CHECK(data->vocabulary().size == 256);
  CHECK(data->samples(Split::train) == 1);
  const Samples s = read_samples(*data, Split::train, 0, 1, 255);
  CHECK((s.inputs.front() == 0 && s.inputs.back() == 254 && s.targets.back() == 255));
}

TEST_CASE("training and validation parts split at n - floor(n * val_fraction)") {
  TempDir dir;
  std::string text;
  for (int i = 0; i < 103; ++i) text += static_cast<char>(i);
  Job job = text_job(dir.write("t.txt", text), 4, DataFormat::characters);
  job.data.val_fraction = 0.25;  // floor(25.75) = 25 of 103
  const auto data = open_dataset(job);
  CHECK(data->samples(Split::train) == 19);      // (78 - 1) / 4
  CHECK(data->samples(Split::validation) == 6);  // (25 - 1) / 4
  CHECK(read_samples(*data, Split::validation, 0, 1, 4).inputs == Ids{78, 79, 80, 81});
  CHECK(read_samples(*data, Split::train, 18, 1, 4).targets == Ids{73, 74, 75, 76});
  // Validation starts over after its last sample.
  CHECK(read_samples(*data, Split::validation, 6, 1, 4).inputs == Ids{78, 79, 80, 81});
}

TEST_CASE("ranks of any number and micro-batch read the same samples as one rank") {
  TempDir dir;
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>('a' + i * 7 % 26);
  Job job = text_job(dir.write("t.txt", text), 3);
  job.data.random_order = true;
  const auto data = open_dataset(job);
  constexpr int64_t kBatch = 24, kStep = 17;
  const Samples whole = read_samples(*data, Split::train, kStep * kBatch, kBatch, 3);
  for (const int64_t ranks : {2, 3, 4}) {
    const int64_t micro = 2, rounds = kBatch / ranks / micro;
    Samples joined;
    for (int64_t m = 0; m < rounds; ++m)
      for (int64_t r = 0; r < ranks; ++r) {
        const Samples part =
            read_samples(*data, Split::train, kStep * kBatch + (m * ranks + r) * micro, micro, 3);
        joined.inputs.insert(joined.inputs.end(), part.inputs.begin(), part.inputs.end());
        joined.targets.insert(joined.targets.end(), part.targets.begin(), part.targets.end());
      }
    CHECK((joined.inputs == whole.inputs && joined.targets == whole.targets));
  }
}

TEST_CASE("random order reads every sample once per epoch, another order for another seed") {
  TempDir dir;
  std::string text;
  for (int i = 0; i < 128; ++i) text += static_cast<char>(i);
  Job job = text_job(dir.write("t.txt", text), 2, DataFormat::characters);
  job.data.random_order = true;
  const auto data = open_dataset(job);
  Ids first = read_samples(*data, Split::train, 0, 63, 2).inputs;
  job.seed = 99;
  CHECK(read_samples(*open_dataset(job), Split::train, 0, 63, 2).inputs != first);
  std::sort(first.begin(), first.end());
  Ids expected(126);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(first == expected);
}

TEST_CASE("a file of one character repeated has a vocabulary of one") {
  TempDir dir;
  const auto data = open_dataset(text_job(dir.write("t.txt", "aaaaa"), 4));
  CHECK(data->vocabulary().size == 1);
  CHECK(read_samples(*data, Split::train, 0, 1, 4).targets == Ids{0, 0, 0, 0});
}

TEST_CASE("the summary names file, tokens, vocabulary and samples") {
  TempDir dir;
  Job job = text_job(dir.write("t.txt", std::string(50, 'a') + std::string(50, 'b')), 4);
  job.data.val_fraction = 0.1;
  CHECK(open_dataset(job)->summary() ==
        dir / "t.txt" +
            ": 100 characters, vocabulary 2; 22 training samples of 4, 2 for validation");
  CHECK(open_dataset(text_job(dir.write("one.txt", "ababa"), 4))->summary() ==
        dir / "one.txt" +
            ": 5 characters, vocabulary 2; 1 training sample of 4, none for validation, whose part "
            "has 0 characters and needs 5");
}

}  // namespace
}  // namespace dstrain
