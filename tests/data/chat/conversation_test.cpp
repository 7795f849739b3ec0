// Lines of fine-tuning data, and the tokens that they become.
#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "tests/data/chat/chat_fixture.h"
#include "tests/data/tokenizer/golden_files.h"

namespace dstrain {
namespace {

using Catch::Matchers::Contains;
using Counts = std::vector<uint8_t>;

TEST_CASE("chat lines: each kind is read, and other members are counted") {
  ChatLine line;
  CHECK(ignored_in(R"({"n": 1, "text": "a", "m": 2})", line) ==
        std::map<std::string, int64_t>{{"m", 1}, {"n", 1}});
  CHECK((line.kind == ChatLineKind::text && line.text == "a"));
  line = read(R"({"prompt": "p", "completion": "c"})");
  CHECK((line.kind == ChatLineKind::prompt && line.text == "p" && line.completion == "c"));
  line = read(R"({"messages": [{"role": "user", "name": null, "content": "c", "x": [1]}]})");
  CHECK(line.kind == ChatLineKind::messages);
  CHECK(jinja::repr_of(line.messages.messages) == "[{'role': 'user', 'content': 'c', 'x': [1]}]");
  // Numbers that are not read may be larger than integers here.
  CHECK(read(R"({"text": "a", "hash": 18446744073709551615})").text == "a");
  line = read(R"({"messages": [{"role": "a", "content": "b", "x": [9223372036854775807, 1e20]}]})");
  CHECK(jinja::repr_of(line.messages.messages) ==
        "[{'role': 'a', 'content': 'b', 'x': [9223372036854775807, 1e+20]}]");
  CHECK(read("{\"text\": \"a\\u0000b\"}").text == std::string("a\0b", 3));
  CHECK(read("{\"text\": \"\\ud83d\\ude00\"}").text == "\xf0\x9f\x98\x80");
}

TEST_CASE("chat lines: a pair of answers has one prompt, its own or what both begin with") {
  const auto texts = [](const std::string& members) {
    const ChatLine line = read("{" + members + "}");
    CHECK((line.kind == ChatLineKind::preference && line.answers.size() == 2));
    CHECK(line.answers[0].text == line.answers[1].text);
    return std::vector<std::string>{line.answers[0].text, line.answers[0].completion,
                                    line.answers[1].completion};
  };
  using Texts = std::vector<std::string>;
  CHECK(texts(R"("prompt": "p ", "chosen": "pc", "rejected": "pr")") == Texts{"p ", "pc", "pr"});
  CHECK(texts(R"("chosen": "2 + 2 is 4", "rejected": "2 + 2 is 5")") ==
        Texts{"2 + 2 is", " 4", " 5"});
  CHECK(texts(R"("chosen": "ab", "rejected": "ac")") == Texts{"a", "b", "c"});
  CHECK(texts("\"chosen\": \"a\u00e4\", \"rejected\": \"a\u00f6\"") ==
        Texts{"a", "\u00e4", "\u00f6"});
  const auto messages = [](const std::string& members) {
    const ChatLine line = read("{" + members + "}");
    std::vector<std::string> shown;
    for (const ChatLine& answer : line.answers) {
      CHECK(answer.kind == ChatLineKind::messages);
      shown.push_back(std::to_string(answer.prompt_messages) + " of " +
                      jinja::repr_of(answer.messages.messages));
    }
    return shown;
  };
  const std::string ask = R"({"role": "user", "content": "q"})",
                    yes = R"({"role": "assistant", "content": "y"})",
                    no = R"({"role": "assistant", "content": "n"})";
  const Texts expected{
      "1 of [{'role': 'user', 'content': 'q'}, {'role': 'assistant', 'content': 'y'}]",
      "1 of [{'role': 'user', 'content': 'q'}, {'role': 'assistant', 'content': 'n'}]"};
  const std::string own =
      R"("prompt": [)" + ask + R"(], "chosen": [)" + yes + R"(], "rejected": [)" + no + "]";
  const std::string alike =
      R"("chosen": [)" + ask + "," + yes + R"(], "rejected": [)" + ask + "," + no + "]";
  CHECK(messages(own) == expected);
  CHECK(messages(alike) == expected);
  CHECK(messages(R"("prompt": "q", )" + alike) == expected);
}

TEST_CASE("chat lines: reasoning is found under the names that templates read") {
  const auto message = [](const std::string& members) {
    const ChatLine line =
        read(R"({"messages": [{"role": "assistant", "content": "c", )" + members + "}]}");
    return jinja::repr_of(line.messages.messages.list()->items[0]);
  };
  CHECK(message(R"("reasoning": "r")") ==
        "{'thinking': 'r', 'role': 'assistant', 'content': 'c', 'reasoning': 'r', "
        "'reasoning_content': 'r'}");
  CHECK(message(R"("reasoning": "r", "thinking": "t")") ==
        "{'thinking': 't', 'role': 'assistant', 'content': 'c', 'reasoning': 'r', "
        "'reasoning_content': 't'}");
  CHECK(message(R"("thinking": "t", "reasoning_content": "")") ==
        "{'thinking': 't', 'role': 'assistant', 'content': 'c', 'reasoning_content': ''}");
  CHECK(message(R"("thinking": null, "reasoning_content": "r")") ==
        "{'thinking': 'r', 'role': 'assistant', 'content': 'c', 'reasoning_content': 'r'}");
  CHECK(message(R"("reasoning": null)") == "{'role': 'assistant', 'content': 'c'}");
}

TEST_CASE("chat lines: an invalid line is an error with its place and reason") {
  const auto refuses = [](const std::string& line, const std::string& message) {
    INFO(line.substr(0, 100));
    CHECK_THROWS_WITH(read(line), Catch::Matchers::StartsWith("a.jsonl:7: ") && Contains(message));
  };
  refuses("", "is not JSON");
  refuses("{\"text\": \"a\"} x", "is not JSON");
  refuses(std::string("{\"text\": \"a\0b\"}", 14), "is not JSON");
  refuses(R"({"text": "\ud800"})", "is not JSON");
  refuses(R"({"text": "\udc00a"})", "is not JSON");
  refuses("{\"text\": \"\xed\xa0\x80\"}", "is not JSON");
  refuses(std::string(10'000'000, '['), "nested more than 64 deep");
  refuses("{\"text\": \"" + std::string(10'000'000, 'a'), "is not JSON");
  refuses("5",
          "expected an object such as {\"text\": \"...\"} or {\"messages\": [...]}, found number");
  refuses("{}", "the line has none of \"text\", \"messages\", \"prompt\" with \"completion\"");
  refuses(R"({"text": null})", "\"text\": expected a string, found null");
  refuses(R"({"text": "a", "messages": []})", "the line has several");
  refuses(R"({"chosen": "a", "rejected": "b", "completion": "c"})", "the line has several");
  refuses(R"({"chosen": "a", "rejected": []})", "\"chosen\" is string and \"rejected\" array");
  refuses(R"({"chosen": "a", "rejected": "a"})", "begins with all of the other");
  refuses(R"({"chosen": "a", "rejected": "b"})", "no \"prompt\" is there");
  refuses(R"({"chosen": "a", "rejected": "b", "prompt": 1})", "\"prompt\": expected a string");
  const std::string message = R"([{"role": "user", "content": "q"}])";
  refuses(R"({"chosen": )" + message + R"(, "rejected": )" + message + "}",
          "begins with all messages of the other");
  refuses(R"({"chosen": )" + message + R"(, "rejected": [{"role": "a", "content": "b"}]})",
          "begin with different messages");
  refuses(R"({"chosen": [], "rejected": [], "prompt": )" + message + "}",
          "\"chosen\": the array is empty");
  refuses(R"({"prompt": "a"})", "the line has \"prompt\" and no \"completion\"");
  refuses(R"({"completion": "a"})", "the line has \"completion\" and no \"prompt\"");
  refuses(R"({"prompt": [], "completion": "a"})", "\"prompt\" is array and \"completion\" string");
  refuses(R"({"chosen": "a"})", "the line has \"chosen\" and no \"rejected\"");
  for (const std::string number :
       {"9223372036854775808", "-9223372036854775809", "18446744073709551616"})
    refuses(R"({"messages": [{"role": "a", "content": "b", "x": [)" + number + "]}]}",
            "\"messages\": an integer is larger than 64 bits");
  refuses(R"({"messages": {}})", "\"messages\": expected an array of messages, found object");
  refuses(R"({"messages": []})", "\"messages\": the array is empty");
  refuses(R"({"messages": ["a"]})",
          "messages[0]: expected an object with \"role\" and \"content\", found string");
  refuses(R"({"messages": [{"role": "user"}]})", "messages[0]: the message has no \"content\"");
  refuses(R"({"messages": [{"content": "a"}]})", "messages[0]: the message has no \"role\"");
  refuses(R"({"messages": [{"role": "user", "content": 5}]})",
          "messages[0]: \"content\": expected a string or an array of text parts, found number");
  refuses(R"({"messages": [{"role": 1, "content": ""}]})",
          "messages[0]: \"role\": expected a string, found number");
}

const std::string kTurns = "{\"messages\": [" + message("user", "one") + ", " +
                           message("assistant", "two ") + ", " + message("user", "three") + ", " +
                           message("assistant", "four\\n") + "]}";
TEST_CASE("conversations: without marks answers count up to the token that ends the turn") {
  const Tokenizer tokenizer = golden_tokenizer("qwen2");
  CHECK(counted_text(tokenizer, kPlain, read(kTurns)) == "two <|im_end|>four\n<|im_end|>");
  CHECK(counted_text(tokenizer, kPlain, read(kTurns), LossOn::all)
            .starts_with("<|im_start|>user:one"));
  // Without a token that ends turns nothing is left out.
  CHECK(counted_text(tokenizer,
                     "{% for m in messages %}{{ m.role ~ ':' ~ m.content ~ '\\n\\n' }}{% endfor %}"
                     "{% if add_generation_prompt %}assistant:{% endif %}",
                     read(kTurns)) == "two \n\nfour\n\n\n");
}

TEST_CASE("conversations: a template that renders each end in its own way needs marks") {
  const Tokenizer tokenizer = golden_tokenizer("qwen2");
  const std::string last =
      "{% for m in messages %}{{ m.role ~ m.content ~ ('.' if loop.last else ',') }}{% endfor %}";
  CHECK_THROWS_WITH(counted_text(tokenizer, last, read(kTurns)),
                    Contains("t: the assistant's tokens cannot be found at message 1") &&
                        Contains("{% generation %}") &&
                        Contains("dstrain.data.chat_template of a run"));
  CHECK(counted_text(tokenizer,
                     "{% for m in messages %}{{ m.role }}{% if m.role == 'assistant' %}"
                     "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% endif %}"
                     "{{ loop.last }}{% endfor %}",
                     read(kTurns)) == "two <|im_end|>four\n<|im_end|>");
}

TEST_CASE("conversations: a token counts where a byte of it does, through normalization") {
  const Tokenizer tokenizer = golden_tokenizer("qwen2");
  const std::string marked =
      "{% for m in messages %}{{ m.role }}|{% generation %}{{ m.content }}{% endgeneration %}|{% "
      "endfor %}";
  const auto line = [](const std::string& content) {
    return read("{\"messages\": [" + message("assistant", content) + "]}");
  };
  CHECK(counted_text(tokenizer, marked, line("re\u0301e \u1112\u1161\u11ab e\u0301")) ==
        "r\u00e9e \ud55c \u00e9");
  CHECK(counted_text(tokenizer, marked, line("\u65e5\u672c <mask> x")) == "\u65e5\u672c<mask> x");
  CHECK(counted_text(tokenizer, marked, line("")).empty());
}

TEST_CASE("conversations: spans of tokens cover the text in order") {
  for (const char* const name : {"gpt2", "llama3", "qwen2", "qwen3_5"}) {
    const Tokenizer tokenizer = golden_tokenizer(name);
    const std::string text =
        golden_file("scripts.txt") + " e\u0301e\u0301 <|im_end|> cafe\u0301 \u212b<sep>  x<mask>";
    std::vector<uint32_t> ids;
    std::vector<TokenSpan> spans;
    TextEncoder(tokenizer).encode_with_spans(text, ids, spans);
    CHECK(ids == tokenizer.encode(text));
    REQUIRE(spans.size() == ids.size());
    size_t end = 0;
    bool ordered = true, same = true;
    for (size_t i = 0; i < spans.size(); ++i) {
      ordered =
          ordered && spans[i].begin <= end && spans[i].begin <= spans[i].end && spans[i].end >= end;
      end = spans[i].end;
      const std::string part = text.substr(spans[i].begin, spans[i].end - spans[i].begin);
      if (std::string_view(name) == "gpt2" || std::string_view(name) == "llama3")
        same = same && part == tokenizer.bytes_of(ids[i]);
    }
    CHECK(ordered);
    CHECK(same);
    CHECK(end == text.size());
  }
}

TEST_CASE("conversations: a character that NFC changes makes none before it count") {
  const Tokenizer tokenizer = golden_tokenizer("qwen2");
  const ChatEncoding encoding;
  const auto counts = [&](const std::string& completion) {
    EncodedConversation all;
    std::map<std::string, int64_t> ignored;
    ConversationEncoder(tokenizer, encoding)
        .encode(read(R"({"prompt": "a b\n", "completion": ")" + completion + "\"}"), all, ignored);
    return all.counts;
  };
  const Counts composed = counts("\u6771\u4eac\u3067\u3059");
  CHECK(counts("\u6771\u4eac\u3066\u3099\u3059") == composed);
  CHECK(std::ranges::count(composed, 0) > 0);
}

TEST_CASE("conversations: a space that the pre-tokenizer adds moves no token's place") {
  std::string json = golden_file("gpt2.json");
  const std::string off = "\"add_prefix_space\":false";
  json.replace(json.find(off), off.size(), "\"add_prefix_space\":true");
  const Tokenizer tokenizer(json, "gpt2.json");
  const std::string text = "a b 12 c";
  std::vector<uint32_t> ids;
  std::vector<TokenSpan> spans;
  TextEncoder(tokenizer).encode_with_spans(text, ids, spans);
  REQUIRE(tokenizer.bytes_of(ids.front()).starts_with(' '));
  size_t end = 0;
  for (const TokenSpan& span : spans) {
    CHECK(span.begin == end);
    end = span.end;
  }
  CHECK(end == text.size());
}

TEST_CASE("conversations: completions count with the end of the text, prompts do not") {
  const Tokenizer tokenizer = golden_tokenizer("llama3");
  ChatEncoding encoding;
  encoding.end = tokenizer.id_of("<|end_of_text|>");
  const auto encode = [&](const std::string& line) {
    EncodedConversation all;
    std::map<std::string, int64_t> ignored;
    ConversationEncoder(tokenizer, encoding).encode(read(line), all, ignored);
    return all;
  };
  const auto all = encode(R"({"prompt": "a b", "completion": " 12"})");
  const std::vector<uint32_t> text = tokenizer.encode("a b 12");
  CHECK(all.ids.size() == text.size() + 2);
  CHECK(all.ids.front() == tokenizer.prefix()[0]);
  CHECK(all.ids.back() == *encoding.end);
  Counts expected(all.ids.size(), 0);
  for (size_t i = 1 + tokenizer.encode("a b").size(); i < expected.size(); ++i) expected[i] = 1;
  CHECK(all.counts == expected);
  encoding.loss_on = LossOn::all;
  CHECK(encode(R"({"prompt": "a b", "completion": " 12"})").counts == Counts(all.ids.size(), 1));
  encoding.loss_on = LossOn::completion;
  CHECK_THROWS_WITH(encode(R"({"text": "a"})"), Contains("the line has no \"completion\""));
  encoding.loss_on = LossOn::assistant;
  CHECK_THROWS_WITH(encode(R"({"text": "a"})"), Contains("the line has no \"messages\""));
  encoding.loss_on = LossOn::usual;
  CHECK_THROWS_WITH(encode(kTurns), Contains("the model's directory has no chat template"));
}

ChatLine conversation_of(int messages) {
  std::string text = "{\"messages\": [" + message("user", "a");
  for (int i = 1; i < messages; ++i) text += ", " + message("assistant", "b");
  return read(text + "]}");
}

TEST_CASE("conversations: many messages are encoded") {
  const Tokenizer tokenizer = golden_tokenizer("qwen2");
  CHECK(counted_text(tokenizer, std::string(built_in_template("chatml")), conversation_of(100'000))
            .size() == 99'999 * std::string_view("b<|im_end|>").size());
}

TEST_CASE("conversations: without marks many messages end with one error") {
  const Tokenizer tokenizer = golden_tokenizer("qwen2");
  const ChatLine line = conversation_of(100'000);
  CHECK_THROWS_WITH(counted_text(tokenizer, kPlain, line, LossOn::usual, 3'000'000),
                    Contains("t: line 1: rendering takes more than 3000000 steps") &&
                        Contains("{% generation %}") && Contains("loss_on all"));
  CHECK_THROWS_WITH(counted_text(tokenizer, kPlain, line, LossOn::all, 3'000),
                    Contains("more than 3000 steps") && !Contains("{% generation %}"));
}

}  // namespace
}  // namespace dstrain
