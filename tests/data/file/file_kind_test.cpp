// Files that are not plain text.
#include <fmt/format.h>

#include <string_view>

#include "tests/data/dataset_fixture.h"

namespace dstrain {
namespace {

using Catch::Contains;
using namespace std::string_view_literals;

std::string error_of(const std::string& name, std::string_view bytes,
                     DataFormat format = DataFormat::automatic) {
  TempDir dir;
  return open_error(text_job(dir.write(name, std::string(bytes)), 4, format));
}

TEST_CASE("a byte order mark is no part of the text") {
  TempDir dir;
  const std::string text = "ab\u00e9 abc\u00e9d abcd";
  for (const std::string& body : {text, std::string("abcdabcdabcd")}) {
    const auto plain = open_dataset(text_job(dir.write("a.txt", body), 4));
    const auto marked = open_dataset(text_job(dir.write("b.txt", "\xef\xbb\xbf" + body), 4));
    CHECK(marked->vocabulary().characters == plain->vocabulary().characters);
    const Samples a = read_samples(*plain, Split::train, 0, 2, 4);
    const Samples b = read_samples(*marked, Split::train, 0, 2, 4);
    CHECK(a.inputs == b.inputs);
    CHECK(a.targets == b.targets);
  }
  CHECK_THAT(error_of("b.txt", "\xef\xbb\xbf"), Contains("empty but for a byte order mark"));
}

TEST_CASE("text in another encoding says how to convert it") {
  CHECK_THAT(error_of("t.txt",
                      "\xff\xfe"
                      "a\0b\0"sv),
             Contains("t.txt is UTF-16 text") && Contains("iconv -f UTF-16 -t UTF-8"));
  CHECK_THAT(error_of("t.txt", "\xfe\xff\0a\0b"sv), Contains("is UTF-16 text"));
  CHECK_THAT(error_of("t.txt", "\xff\xfe\0\0a\0\0\0"sv), Contains("is UTF-32 text"));
  CHECK_THAT(error_of("t.txt", "a\0b\0c\0d\0e\0"sv),
             Contains("a byte 0 at offset 1") && Contains("iconv") && Contains("\"byte\""));
}

TEST_CASE("a compressed file says how to unpack it") {
  CHECK_THAT(error_of("t.txt.gz", "\x1f\x8b\x08\0abcdefgh"sv),
             Contains("compressed by gzip: unpack it: gzip -dk"));
  CHECK_THAT(error_of("t.txt", "\x28\xb5\x2f\xfd abcdefgh"sv), Contains("zstd -d"));
  CHECK_THAT(error_of("t.txt", "PK\x03\x04 abcdefgh"sv), Contains("unzip"));
}

TEST_CASE("a table in Parquet says how to make JSON lines of it") {
  for (const char* const name : {"t.parquet", "t.txt"})
    CHECK_THAT(error_of(name, "PAR1\x15\x04\x15\0abcdefgh"sv),
               Contains("Debian 12 has no library") && Contains("python3 -c \"import pandas; ") &&
                   Contains(fmt::format("{0}').to_json('", name)) &&
                   Contains(fmt::format("{}.jsonl', orient='records', lines=True)\"", name)));
  CHECK_THAT(error_of("t.parquet", "abcdefgh"), Contains("read_parquet"));
}

TEST_CASE("records say how to take the text out of them, and pass where they are asked for") {
  const std::string_view lines = "{\"text\": \"abcdef\"}\n{\"text\": \"ghi\"}\n";
  CHECK_THAT(error_of("t.jsonl", lines),
             Contains("is JSON lines") && Contains("jq -r .text") && Contains("\"char\""));
  CHECK_THAT(error_of("t.txt", lines), Contains("begins as JSON lines"));
  CHECK_THAT(error_of("t.csv", "id,text\n1,abc\n"), Contains("a table in CSV"));
  TempDir dir;
  CHECK(open_dataset(text_job(dir.write("t.jsonl", std::string(lines)), 4, DataFormat::characters))
            ->samples(Split::train) > 0);
  CHECK(open_dataset(text_job(dir.write("t.txt", "{\"a stage\" direction}\nabc\n"), 4))
            ->samples(Split::train) > 0);
  CHECK(open_dataset(text_job(dir.write("b.gz", std::string("\x1f\x8b\x08\0abcdefgh"sv)), 4,
                              DataFormat::bytes))
            ->samples(Split::train) > 0);
}

}  // namespace
}  // namespace dstrain
