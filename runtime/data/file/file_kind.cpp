#include "runtime/data/file/file_kind.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>

#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"

namespace dstrain {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kTable = "a table in Parquet, for which Debian 12 has no library";
constexpr std::string_view kConvertTable =
    "make JSON lines of it: python3 -c \"import pandas; "
    "pandas.read_parquet('{0}').to_json('{0}.jsonl', "
    "orient='records', lines=True)\"";

// {0} of an advice is the file.
struct Beginning {
  std::string_view bytes, what, advice;
};

// A longer one stands before its own prefix.
constexpr std::array kBeginnings = {
    Beginning{"\xff\xfe\0\0"sv, "UTF-32 text", "convert it: iconv -f UTF-32 -t UTF-8 {0}"},
    Beginning{"\0\0\xfe\xff"sv, "UTF-32 text", "convert it: iconv -f UTF-32 -t UTF-8 {0}"},
    Beginning{"\xff\xfe"sv, "UTF-16 text", "convert it: iconv -f UTF-16 -t UTF-8 {0}"},
    Beginning{"\xfe\xff"sv, "UTF-16 text", "convert it: iconv -f UTF-16 -t UTF-8 {0}"},
    Beginning{"\x1f\x8b"sv, "compressed by gzip", "unpack it: gzip -dk {0}"},
    Beginning{"\x28\xb5\x2f\xfd"sv, "compressed by zstd", "unpack it: zstd -d {0}"},
    Beginning{"\xfd"
              "7zXZ\0"sv,
              "compressed by xz", "unpack it: xz -dk {0}"},
    Beginning{"BZh9"sv, "compressed by bzip2", "unpack it: bzip2 -dk {0}"},
    Beginning{"PK\x03\x04"sv, "a zip archive", "unpack it: unzip {0}"},
    Beginning{"PAR1\x15"sv, kTable, kConvertTable},
};

struct Ending {
  std::string_view name, what, advice;
};

constexpr std::string_view kPlain =
    "; or give dstrain.data.format \"char\" to train on the file as it is";
constexpr std::string_view kJson = "JSON";
constexpr std::string_view kTakeColumn = "write its column of text to a file of its own";

constexpr std::array kEndings = {
    Ending{".jsonl", "JSON lines", "take the text out of it: jq -r .text"},
    Ending{".ndjson", "JSON lines", "take the text out of it: jq -r .text"},
    Ending{".json", kJson, "take the text out of it with jq -r"},
    Ending{".csv", "a table in CSV", kTakeColumn},
    Ending{".tsv", "a table in TSV", kTakeColumn},
    Ending{".parquet", kTable, kConvertTable},
    Ending{".arrow", "a table in Arrow", kTakeColumn},
};

std::string_view bytes_of(const DataFile& file) {
  return {reinterpret_cast<const char*>(file.data()), static_cast<size_t>(file.bytes())};
}

// What to do with JSON that is no array where a tokenizer reads lines of it.
std::string lines_advice(const std::string& path) {
  return fmt::format("if each of its lines is an object, name it {}l", path);
}

// Returns whether the line is a JSON object like {"text": "..."}.
bool is_json_object(std::string_view line) {
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
  return line.starts_with("{\"") && line.ends_with('}') && line.find("\":") != line.npos;
}

}  // namespace

int64_t text_begin(const DataFile& file) {
  const std::string_view bytes = bytes_of(file);
  for (const Beginning& b : kBeginnings)
    if (bytes.starts_with(b.bytes))
      fail_user("the data file {} is {}: {}; or read it as bytes with dstrain.data.format \"byte\"",
                file.path(), b.what, fmt::format(fmt::runtime(b.advice), file.path()));
  const std::string_view text = without_byte_order_mark(bytes);
  if (text.empty()) fail_user("the data file {} is empty but for a byte order mark", file.path());
  return std::ssize(bytes) - std::ssize(text);
}

std::string doubt_of_text(const DataFile& file, TextIds ids) {
  text_begin(file);  // reports compressed files and other encodings first
  const std::string& path = file.path();
  const bool tokenizer = ids == TextIds::tokenizer;
  const std::string_view plain = tokenizer ? "" : kPlain;
  for (const Ending& e : kEndings)
    if (path.ends_with(e.name))
      return fmt::format("the data file {} is {}, and training is on plain text: {}{}", path,
                         e.what,
                         tokenizer && e.what == kJson ? lines_advice(path)
                                                      : fmt::format(fmt::runtime(e.advice), path),
                         plain);
  const std::string_view bytes = bytes_of(file);
  constexpr size_t longest = 1 << 20;
  const std::string_view first = bytes.substr(0, std::min(bytes.find('\n'), longest));
  if (first.size() == bytes.size() || !is_json_object(first)) return "";
  return fmt::format("the data file {} begins as JSON lines, and training is on plain text: {}{}",
                     path, tokenizer ? "name it FILE.jsonl" : kEndings.front().advice, plain);
}

void refuse_doubtful(const DataFile& file, TextIds ids) {
  if (const std::string doubt = doubt_of_text(file, ids); !doubt.empty()) fail_user("{}", doubt);
  const size_t zero = bytes_of(file).find('\0');
  file.check_whole();
  if (zero != std::string_view::npos)
    fail_user(
        "the data file {} has a byte 0 at offset {}, so it is not text, or it is text in UTF-16 "
        "(then: iconv -f UTF-16 -t UTF-8 {}); or read it {}token ids with dstrain.data.format "
        "\"bin\"{}",
        file.path(), zero, file.path(),
        ids == TextIds::tokenizer ? "as " : "as bytes with dstrain.data.format \"byte\", as ",
        ids == TextIds::tokenizer ? "" : kPlain);
}

}  // namespace dstrain
