#include "runtime/data/documents/documents.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "runtime/core/error.h"
#include "runtime/core/threads/parts.h"
#include "runtime/data/tokenizer/tokenizer_directory.h"
#include "tests/data/tokenizer/golden_files.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using Catch::Matchers::Contains;
using Ids = std::vector<uint32_t>;

struct Encoded {
  Ids ids;
  std::vector<size_t> starts;
  DocumentCounts counts;
};

Encoded encoded(const Tokenizer& tokenizer, const std::string& path,
                std::optional<uint32_t> end = {}) {
  Encoded all;
  encode_file(tokenizer, path, end, all.counts, [&all](const EncodedPart& part, int64_t) {
    for (const size_t start : part.starts) all.starts.push_back(all.ids.size() + start);
    all.ids.insert(all.ids.end(), part.ids.begin(), part.ids.end());
  });
  return all;
}

std::string line(const std::string& text) {
  return nlohmann::json{{"text", text}}.dump() + "\n";
}

TEST_CASE("documents: a text file has the ids of its whole text, on any number of threads") {
  const TempDir dir;
  std::string text;
  while (text.size() < 1'200'000)
    text += golden_file("scripts.txt") + "\n  cafe\u0301 <sep> \n<mask>x\n\n";
  const std::string path = dir.write("a.txt", text);
  for (const char* const name : {"gpt2", "llama3", "qwen2"}) {
    const Tokenizer tokenizer = golden_tokenizer(name);
    const Ids whole = tokenizer.encode(text);
    for (const int threads : {1, 3}) {
      set_thread_count(threads);
      const Encoded found = encoded(tokenizer, path);
      CHECK(found.ids == whole);
      CHECK(found.starts == std::vector<size_t>{0});
      CHECK(found.counts.documents == 1);
      CHECK(found.counts.tokens == std::ssize(whole));
      CHECK(found.counts.bytes == std::ssize(text));
    }
  }
}

TEST_CASE("documents: places that are no UTF-8 are counted, and the first is named") {
  const TempDir dir;
  const std::string path = dir.write("a.txt", std::string(600'000, ' ') + "ab\xff c\n\xe2\x82");
  const Tokenizer tokenizer = golden_tokenizer("gpt2");
  const Encoded found = encoded(tokenizer, path);
  CHECK(found.counts.invalid == 2);
  CHECK(found.counts.first_invalid == path + ": offset 600002");
}

TEST_CASE("documents: a line of JSON is a document with prefix, suffix and end") {
  const TempDir dir;
  const Tokenizer tokenizer = golden_tokenizer("llama3");
  const auto begin = tokenizer.prefix()[0];
  const Ids one = tokenizer.encode("one\u00e9"), two = tokenizer.encode("two\n");
  const std::string path =
      dir.write("a.jsonl", line("one\u00e9") + "\n  \r\n" +
                               "{\"n\": 1, \"text\": \"two\\n\"}\r\n{\"text\": \"\"}");
  const Encoded found = encoded(tokenizer, path, 7);
  Ids expected = {begin};
  const auto add = [&expected](const Ids& ids, const Ids& more) {
    expected.insert(expected.end(), ids.begin(), ids.end());
    expected.insert(expected.end(), more.begin(), more.end());
  };
  add(one, {7, begin});
  add(two, {7, begin, 7});
  CHECK(found.ids == expected);
  CHECK(found.starts == std::vector<size_t>{0, one.size() + 2, one.size() + two.size() + 4});
  CHECK(found.counts.documents == 3);
  CHECK(found.counts.ignored == std::map<std::string, int64_t>{{"n", 1}});
  CHECK(encoded(tokenizer, path).ids.size() == expected.size() - 3);
}

TEST_CASE(
    "documents: the first invalid line is the error, with its number, on any number of threads") {
  const TempDir dir;
  const Tokenizer tokenizer = golden_tokenizer("gpt2");
  std::string lines;
  while (lines.size() < 700'000)
    lines += line("a b c d e f g h i j k l m n o p q r s t u v w x y z");
  const auto number = std::count(lines.begin(), lines.end(), '\n') + 1;
  const auto refuses = [&](const std::string& bad, const std::string& message) {
    const std::string path = dir.write("a.jsonl", lines + bad + "\n" + lines + "[]\n");
    INFO(message);
    for (const int threads : {1, 3}) {
      set_thread_count(threads);
      CHECK_THROWS_WITH(encoded(tokenizer, path),
                        Contains(fmt::format("a.jsonl:{}: ", number)) && Contains(message));
    }
  };
  refuses("{\"text\": ", "is not JSON");
  refuses("{\"text\": \"\xff\"}", "is not JSON");
  refuses("[1]",
          "expected an object such as {\"text\": \"...\"} or {\"messages\": [...]}, found array");
  refuses("{\"text\": 5}", "\"text\": expected a string, found number");
  refuses("{\"txt\": \"a\"}", "the line has none of \"text\", \"messages\"");
  refuses("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}",
          "the line has messages, and");
  refuses("{\"text\": " + std::string(100, '[') + "}", "nested more than 64 deep");
}

TEST_CASE(
    "documents: invalid lines are left out where that is asked for, on any number of threads") {
  const TempDir dir;
  const Tokenizer tokenizer = golden_tokenizer("gpt2");
  std::string valid, lines;
  for (int i = 0; i < 30'000; ++i) {
    const std::string good = line("a b c d e f g h i j " + std::to_string(i));
    valid += good;
    lines += good + (i % 3 == 0 ? "{\"text\": \n" : i % 3 == 1 ? "{\"messages\": 5}\n" : "\n");
  }
  const std::string path = dir.write("a.jsonl", lines), only = dir.write("b.jsonl", valid);
  const Encoded expected = encoded(tokenizer, only, 7);
  for (const int threads : {1, 3}) {
    set_thread_count(threads);
    LineOptions options(7);
    options.skip_invalid = true;
    Encoded found;
    encode_file(tokenizer, path, options, found.counts, [&found](const EncodedPart& part, int64_t) {
      CHECK(part.ids.size() == part.counts.size());
      for (const size_t start : part.starts) found.starts.push_back(found.ids.size() + start);
      found.ids.insert(found.ids.end(), part.ids.begin(), part.ids.end());
    });
    CHECK(found.ids == expected.ids);
    CHECK(found.starts == expected.starts);
    CHECK(found.counts.skipped == 20'000);
    CHECK(found.counts.first_skipped.starts_with(path + ":2: is not JSON"));
    CHECK(found.counts.targets == std::ssize(found.ids));
  }
}

TEST_CASE(
    "documents: a line with a pair of answers becomes two documents, each behind the prompt") {
  const TempDir dir;
  const Tokenizer tokenizer = golden_tokenizer("gpt2");
  const std::string pair = R"({"prompt": "a b", "chosen": " c d", "rejected": " e"})",
                    path = dir.write("a.jsonl", pair + "\n" + pair + "\n"),
                    mixed = dir.write("b.jsonl", pair + "\n" + line("a"));
  LineOptions options(7);
  options.answers = AnswerLines::pairs;
  Encoded found;
  std::vector<uint8_t> counts;
  const auto take = [&](const EncodedPart& part, int64_t) {
    for (const size_t start : part.starts) found.starts.push_back(found.ids.size() + start);
    found.ids.insert(found.ids.end(), part.ids.begin(), part.ids.end());
    counts.insert(counts.end(), part.counts.begin(), part.counts.end());
  };
  encode_file(tokenizer, path, options, found.counts, take);
  std::vector<uint32_t> expected;
  std::vector<uint8_t> expected_counts;
  std::vector<size_t> expected_starts;
  const size_t prompt = tokenizer.encode("a b").size();
  for (int i = 0; i < 2; ++i)
    for (const char* const answer : {"a b c d", "a b e"}) {
      const std::vector<uint32_t> ids = tokenizer.encode(answer);
      expected_starts.push_back(expected.size());
      expected.insert(expected.end(), ids.begin(), ids.end());
      expected.push_back(7);
      for (size_t t = 0; t < ids.size() + 1; ++t) expected_counts.push_back(t >= prompt ? 1 : 0);
    }
  CHECK(found.ids == expected);
  CHECK(counts == expected_counts);
  CHECK(found.starts == expected_starts);
  CHECK((found.counts.documents == 4 && found.counts.without_targets == 0));
  CHECK(found.counts.targets == std::ranges::count(expected_counts, 1));
  CHECK_THROWS_WITH(encode_file(tokenizer, mixed, options, found.counts, take),
                    Catch::Contains(":2: the line has no \"chosen\" and \"rejected\""));
  options.answers = AnswerLines::none;
  CHECK_THROWS_WITH(encode_file(tokenizer, path, options, found.counts, take),
                    Catch::Contains(":1: the line has \"chosen\" and \"rejected\""));
  options.skip_invalid = true;
  DocumentCounts left;
  encode_file(tokenizer, mixed, options, left, [](const EncodedPart&, int64_t) {});
  CHECK((left.skipped == 1 && left.documents == 1));
}

TEST_CASE(
    "documents: a rated answer becomes two documents, itself and its prompt with another answer") {
  const TempDir dir;
  const Tokenizer tokenizer = golden_tokenizer("gpt2");
  const auto rated = [](const std::string& prompt, const std::string& answer,
                        const std::string& label) {
    return "{\"prompt\": \"" + prompt + "\", \"completion\": \"" + answer +
           "\", \"label\": " + label + "}\n";
  };
  struct Document {
    std::string prompt, answer;
    uint8_t mark;
  };
  // Each answer follows the next prompt, and the second one the first prompt.
  const std::vector<Document> documents{{"a b", " c d", 1}, {"a b", " e", 1}, {"f", " e", 2},
                                        {"f", " c d", 1},   {"g", " h i", 1}, {"g", " e", 1}};
  Encoded expected;
  std::vector<uint8_t> expected_counts;
  for (const Document& document : documents) {
    const size_t prompt = tokenizer.encode(document.prompt).size();
    expected.starts.push_back(expected.ids.size());
    const std::vector<uint32_t> ids = tokenizer.encode(document.prompt + document.answer);
    expected.ids.insert(expected.ids.end(), ids.begin(), ids.end());
    expected.ids.push_back(7);
    for (size_t t = 0; t < ids.size() + 1; ++t)
      expected_counts.push_back(t >= prompt ? document.mark : 0);
  }
  LineOptions options(7);
  options.answers = AnswerLines::rated;
  const std::string text =
      rated("a b", " c d", "true") + rated("f", " e", "false") + rated("g", " h i", "true");
  for (const int threads : {1, 3}) {
    set_thread_count(threads);
    Encoded found;
    std::vector<uint8_t> counts;
    encode_file(tokenizer, dir.write("a.jsonl", text), options, found.counts,
                [&](const EncodedPart& part, int64_t) {
                  for (const size_t start : part.starts)
                    found.starts.push_back(found.ids.size() + start);
                  found.ids.insert(found.ids.end(), part.ids.begin(), part.ids.end());
                  counts.insert(counts.end(), part.counts.begin(), part.counts.end());
                });
    CHECK(found.ids == expected.ids);
    CHECK(found.starts == expected.starts);
    CHECK(counts == expected_counts);
    CHECK((found.counts.documents == 3 && found.counts.without_targets == 0));
  }
  const auto refused = [&](const std::string& lines, const std::string& message) {
    DocumentCounts counts;
    CHECK_THROWS_WITH(encode_file(tokenizer, dir.write("b.jsonl", lines), options, counts,
                                  [](const EncodedPart&, int64_t) {}),
                      Catch::Contains(message));
  };
  refused(rated("a", " b", "true"), "b.jsonl has one line with an answer: dstrain.objective kto");
  refused(rated("a", " b", "1"),
          ":1: the line has no \"prompt\" and \"completion\" with a \"label\"");
  refused(line("a"), ":1: the line has no \"prompt\" and \"completion\" with a \"label\"");
  // Elsewhere labels are members that are not used.
  options.answers = AnswerLines::none;
  DocumentCounts counts;
  encode_file(tokenizer, dir.write("c.jsonl", text), options, counts,
              [](const EncodedPart&, int64_t) {});
  CHECK((counts.documents == 3 && counts.ignored.at("label") == 3));
}

TEST_CASE("documents: the first line left out is named where it is far behind, and in each file") {
  const TempDir dir;
  const Tokenizer tokenizer = golden_tokenizer("gpt2");
  std::string lines;
  while (lines.size() < 700'000) lines += line("a b c d e f g h i j k l m n o p q r s t u v w");
  const auto number = std::count(lines.begin(), lines.end(), '\n') + 1;
  const std::string bad = R"({"messages": [{"role": "user", "content": "a"}]})";
  const std::string path = dir.write("a.jsonl", lines + bad + "\n" + lines + "[]\n");
  LineOptions options(7);
  options.skip_invalid = true;
  DocumentCounts counts;
  const auto take = [](const EncodedPart&, int64_t) {};
  encode_file(tokenizer, path, options, counts, take);
  CHECK(counts.skipped == 2);
  CHECK(counts.first_skipped.starts_with(
      fmt::format("{}:{}: the line has messages, and", path, number)));
  encode_file(tokenizer, dir.write("b.jsonl", "5\n"), options, counts, take);
  CHECK(counts.skipped == 3);
  CHECK(counts.first_skipped.starts_with(path + ":"));
}

TEST_CASE("documents: the elements of an array are its lines, on any number of threads") {
  const TempDir dir;
  const Tokenizer tokenizer = golden_tokenizer("gpt2");
  std::string lines, array = "\xef\xbb\xbf [";
  for (int i = 0; i < 20'000; ++i) {
    const std::string text = line("a ] } , \\ \" [ { " + std::to_string(i) + " b c d e f g h i j");
    lines += text;
    array += (i == 0 ? "\n" : i % 3 == 0 ? "," : ",\n\n  ") + text;
  }
  array += "\n]\n ";
  const Encoded expected = encoded(tokenizer, dir.write("a.jsonl", lines), 7);
  for (const int threads : {1, 3})
    for (const char* const name : {"b.json", "c.jsonl"}) {
      set_thread_count(threads);
      const Encoded found = encoded(tokenizer, dir.write(name, array), 7);
      CHECK(found.ids == expected.ids);
      CHECK(found.starts == expected.starts);
    }
  CHECK(encoded(tokenizer, dir.write("d.json", " [ ] \n"), 7).ids.empty());
  CHECK(has_json_lines(dir.write("e.json", "\n[1")));
  CHECK(!has_json_lines(dir.write("f.json", "{\"text\": \"[\"}")));
  CHECK(!has_json_lines(dir.write("g.txt", "[]")));
}

TEST_CASE("documents: a damaged array is an error with its line") {
  const TempDir dir;
  const Tokenizer tokenizer = golden_tokenizer("gpt2");
  const auto refuses = [&](const std::string& text, const std::string& error) {
    INFO(text);
    CHECK_THROWS_WITH(encoded(tokenizer, dir.write("a.json", text), 7),
                      Contains("a.json:" + error));
  };
  const std::string one = "{\"text\": \"a\"}";
  refuses("[\n" + one + ",\n" + one + "\n", "3: the array ends in or behind this element");
  refuses("[" + one + ",\n\n" + one.substr(0, 8), "3: the array ends in or behind this element");
  refuses("[" + one + ",\n]", "2: expected an element of the array, found ']'");
  refuses("[\n,", "2: expected an element of the array, found ','");
  refuses("[" + one + "]\n" + one, "2: text follows the array's end: expected one array");
  refuses("[]\nx", "2: text follows the array's end");
  refuses("[" + one + "\n" + one + "]", "1: element 1: is not JSON");
  refuses("[" + one + ",\n 5]", "2: element 2: expected an object such as");
  refuses("[[" + one + "]]", "1: element 1: expected an object such as");
}

TEST_CASE("documents: the token that ends them comes from the directory's files, in this order") {
  const TempDir dir;
  CHECK_THROWS_WITH(open_tokenizer(dir.path()), Contains("there is no tokenizer.json"));
  dir.write("tokenizer.json", golden_file("llama3.json"));
  const auto tokenizer = open_tokenizer(dir.path());
  const auto end = [&] { return end_of_text(dir.path(), *tokenizer)->id; };
  CHECK(end() == tokenizer->id_of("<|end_of_text|>"));
  dir.write("config.json", "{\"eos_token_id\": [3, 4]}");
  CHECK(end() == 3);
  dir.write("generation_config.json", "{\"eos_token_id\": 5}");
  CHECK(end() == 5);
  dir.write("tokenizer_config.json", "{\"eos_token\": {\"content\": \"<|eot_id|>\"}}");
  CHECK(end() == tokenizer->id_of("<|eot_id|>"));
  dir.write("tokenizer_config.json", "{\"eos_token\": \"<none>\"}");
  CHECK_THROWS_WITH(end(), Contains("the tokenizer has no token \"<none>\""));
  dir.write("tokenizer_config.json", "{\"eos_token\": null}");
  dir.write("generation_config.json", "{\"eos_token_id\": 4000000}");
  CHECK_THROWS_WITH(
      end(),
      Contains(
          "generation_config.json: eos_token_id: the tokenizer has no token of the id 4000000"));
}

TEST_CASE("documents: tokens that tokenizer_config.json alone has are named, five and a count") {
  const TempDir dir;
  dir.write("tokenizer.json", golden_file("llama3.json"));
  const auto warnings = [&](const std::string& settings) {
    dir.write("tokenizer_config.json", settings);
    return open_tokenizer(dir.path())->warnings();
  };
  const auto before = warnings("{}").size();
  nlohmann::json added;
  added["0"] = {{"content", "<|end_of_text|>"}};
  const auto text = [&added] { return nlohmann::json{{"added_tokens_decoder", added}}.dump(); };
  CHECK(warnings(text()).size() == before);
  added["1001"] = {{"content", "<|one\n|>"}, {"special", true}};
  REQUIRE(warnings(text()).size() == before + 1);
  CHECK_THAT(
      warnings(text()).back(),
      Contains("tokenizer_config.json: added_tokens_decoder: tokenizer.json lacks the tokens "
               "\"<|one\\n|>\", which are text"));
  for (int i = 2; i <= 7; ++i)
    added[std::to_string(1000 + i)] = {{"content", fmt::format("<|{}|>", i)}};
  CHECK_THAT(warnings(text()).back(), Contains("\"<|5|>\" and 2 more, which"));
  // What is damaged is an error where it is needed.
  for (const std::string damaged : {"{", "[]", R"({"added_tokens_decoder": {"7": 8}})"})
    CHECK(warnings(damaged).size() == before);
}

}  // namespace
}  // namespace dstrain
