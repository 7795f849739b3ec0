#include "runtime/config/text.h"

#include <catch2/catch.hpp>

using namespace dstrain;

TEST_CASE("text: a count has the plural unless it is 1") {
  CHECK(counted(1, "rank") == "1 rank");
  CHECK(counted(0, "rank") == "0 ranks");
  CHECK(counted(1, "micro-batch", "es") == "1 micro-batch");
  CHECK(counted(2, "micro-batch", "es") == "2 micro-batches");
}

TEST_CASE("text: invalid UTF-8 is found at its first byte") {
  CHECK(first_invalid_utf8("plain \xc3\xa9 \xe4\xbd\xbf \xf0\x9f\x98\x80") ==
        std::string_view::npos);
  for (const char* bad :
       {"\x80", "\xc0\x80", "\xc3", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe4\xbd", "\xff"})
    CHECK(first_invalid_utf8(std::string("ab") + bad) == 2);
}

TEST_CASE("text: code points become UTF-8 of one to four bytes") {
  std::string out;
  for (uint32_t code : {0x41u, 0xe9u, 0x4f7fu, 0x1f600u}) append_utf8(out, code);
  CHECK(out == "A\xc3\xa9\xe4\xbd\xbf\xf0\x9f\x98\x80");
}

TEST_CASE("text: the grammar of numbers is JSON's") {
  for (const char* yes : {"0", "-0", "10", "1.5", "1e5", "1E-5", "-1.25e+10"})
    CHECK(is_json_number(yes));
  for (const char* no : {"", "-", "01", "1.", ".5", "+1", "1e", "1e+", "0x1", "1 ", "nan", "1.2.3"})
    CHECK_FALSE(is_json_number(no));
}

TEST_CASE("text: messages get whole characters on one line, at most sixty") {
  CHECK(printable("a\nb\x7f") == "a?b?");
  CHECK(printable(std::string(61, 'x')) == std::string(60, 'x') + "...");
  CHECK(printable("\xe4\xbd\xbf\xff") == "\xe4\xbd\xbf?");
}

TEST_CASE("text: the edit distance counts a transposition once and ignores case and dashes") {
  CHECK(edit_distance("stage", "stage") == 0);
  CHECK(edit_distance("eval-Interval", "eval_interval") == 0);
  CHECK(edit_distance("satge", "stage") == 1);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
}

TEST_CASE("text: a name is near only where it can be meant") {
  const std::vector<std::string> names = {"train_batch_size", "steps_per_print", "optimizer",
                                          "fp16"};
  CHECK(nearest("train_step_batch_size", names) == "train_batch_size");
  CHECK(nearest("optimiser", names) == "optimizer");
  CHECK(nearest("fp8", names) == "fp16");
  CHECK(nearest("bfp16", {"fp16", "bf16", "fp32"}) == "bf16");  // of two as near
  CHECK(nearest("hidden_size", names).empty());
  CHECK(nearest(std::string(101, 'x'), names).empty());
}

TEST_CASE("text: lists of words") {
  CHECK(one_of("a|bc|d", "bc"));
  CHECK_FALSE(one_of("a|bc|d", "b"));
  CHECK_FALSE(one_of("", "a"));
  CHECK(split_words("a|bc") == std::vector<std::string>{"a", "bc"});
}

TEST_CASE("a number of bytes has a unit or is an integer") {
  CHECK(parse_bytes("1048576") == 1048576);
  CHECK(parse_bytes("1.5GB") == 1'500'000'000);
  CHECK(parse_bytes("2GiB") == int64_t{2} << 30);
  for (const char* text :
       {"", "GB", "-1", "-1MB", "1.5", "2 GB", "1e9GB", "nanGB", "99999999999999999999"})
    CHECK_FALSE(parse_bytes(text));
}

TEST_CASE("text: numbers that are all allowed") {
  CHECK(alternatives({}).empty());
  CHECK(alternatives({4}) == "4");
  CHECK(alternatives({1, 4}) == "1 or 4");
  CHECK(alternatives({1, 2, 4}) == "1, 2 or 4");
}
