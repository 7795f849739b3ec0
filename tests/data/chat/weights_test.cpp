// Which messages count in the loss: by their weights, and by what a template shows of where they begin and end.
#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "tests/data/chat/chat_fixture.h"
#include "tests/data/tokenizer/golden_files.h"

namespace dstrain {
namespace {

using Catch::Matchers::Contains;

// Two questions, whose answers have these members.
std::string two_answers(const std::string& first, const std::string& second) {
  return "{\"messages\": [" + message("user", "a") + ", " + message("assistant", "bad", first) +
         ", " + message("user", "b") + ", " + message("assistant", "good", second) + "]}";
}

TEST_CASE("weights: an answer that is not to count does not, with marks and without") {
  const Tokenizer tokenizer = golden_tokenizer("qwen2");
  const std::string marked(built_in_template("chatml"));
  for (const std::string& chat_template : {kPlain, marked}) {
    const auto counted = [&](const std::string& first, const std::string& second) {
      return counted_text(tokenizer, chat_template, read(two_answers(first, second)));
    };
    const std::string bad = "bad<|im_end|>", good = "good<|im_end|>";
    CHECK(counted("", "") == bad + good);
    for (const std::string no :
         {R"(, "weight": 0)", R"(, "train": false)", R"(, "loss_weight": 0.0)",
          R"(, "weight": 0, "train": false)", R"(, "train": 0)"}) {
      INFO(no);
      CHECK(counted(no, R"(, "weight": 1)") == good);
      CHECK(counted(R"(, "train": true)", no) == bad);
      CHECK(counted(no, no).empty());
    }
    CHECK(counted(R"(, "weight": null)", R"(, "loss_weight": 1.0)") == bad + good);
    // A loss on all tokens leaves such an answer out, too.
    const std::string all = counted_text(tokenizer, chat_template,
                                         read(two_answers(R"(, "weight": 0)", "")), LossOn::all);
    CHECK_THAT(all, Contains("user") && Contains(good) && !Contains("bad"));
  }
}

TEST_CASE("weights: what a mask cannot give is refused by name") {
  const auto refuses = [](const std::string& member, const std::string& error) {
    INFO(member);
    CHECK_THROWS_WITH(read(two_answers(", " + member, "")),
                      Catch::Matchers::StartsWith("a.jsonl:7: messages[1]: ") && Contains(error));
  };
  refuses(R"("weight": 0.5)", "\"weight\" is 0.5: a message counts in the loss as a whole");
  refuses(R"("loss_weight": -1)", "\"loss_weight\" is -1");
  refuses(R"("weight": 2)", "expected 0 or false, or 1 or true");
  refuses(R"("train": "false")", "\"train\": expected 0 or false, or 1 or true, found string");
  refuses(R"("weight": 1, "train": false)",
          "\"weight\" says that the message counts in the loss, and \"train\" that it does not");
  const Tokenizer tokenizer = golden_tokenizer("qwen2");
  const auto line = [](const std::string& member) {
    return read("{\"messages\": [" + message("user", "a", member) + ", " +
                message("assistant", "b") + "]}");
  };
  CHECK(counted_text(tokenizer, kPlain, line(R"(, "weight": 0)")) == "b<|im_end|>");
  CHECK_THROWS_WITH(counted_text(tokenizer, kPlain, line(R"(, "train": true)")),
                    Contains("message 0 is not the assistant's") && Contains("remove the weight"));
  CHECK_THROWS_WITH(counted_text(tokenizer, kPlain, line(R"(, "weight": 0)"), LossOn::all),
                    Contains("message 0 is not the assistant's") && Contains("loss_on assistant"));
}

TEST_CASE("weights: members that the template does not read are counted by name") {
  const Tokenizer tokenizer = golden_tokenizer("qwen2");
  const auto ignored = [&](const std::string& chat_template, const std::string& members) {
    std::map<std::string, int64_t> found;
    counted_text(tokenizer, chat_template, read(two_answers(members, members)), LossOn::all,
                 jinja::Limits().steps, &found);
    return found;
  };
  using Names = std::map<std::string, int64_t>;
  CHECK(ignored(kPlain, R"(, "name": "x", "weight": 1)") == Names{{"messages[].name", 2}});
  CHECK(ignored(kPlain, R"(, "reasoning": "x")") == Names{{"messages[].reasoning_content", 2}});
  CHECK(ignored("{% for m in messages %}{{ m.name }}{{ m['n'] }}{% endfor %}",
                R"(, "name": "x", "n": 1)")
            .empty());
  CHECK(ignored("{% for m in messages %}{{ m.thinking }}{% endfor %}", R"(, "reasoning": "x")")
            .empty());
  // A template may write messages as a whole.
  CHECK(ignored("{% for m in messages %}{{ m | tojson }}{% endfor %}", R"(, "name": "x")").empty());
  std::map<std::string, int64_t> found;
  const std::string tools = R"(, "tools": [{"type": "function"}]})";
  std::string line = two_answers("", "");
  line.replace(line.size() - 1, 1, tools);
  counted_text(tokenizer, kPlain, read(line), LossOn::all, jinja::Limits().steps, &found);
  CHECK(found == Names{{"tools", 1}});
}

TEST_CASE("answers: marks count whatever the role is called") {
  const Tokenizer tokenizer = golden_tokenizer("qwen2");
  const std::string marked =
      "{% for m in messages %}{{ m.role }}{% if m.role == 'model' %}{% generation %}{{ m.content "
      "}}{% "
      "endgeneration %}{% endif %}{% endfor %}";
  const ChatLine line =
      read("{\"messages\": [" + message("user", "a") + ", " + message("model", "b") + "]}");
  CHECK(counted_text(tokenizer, marked, line) == "b");
  CHECK(counted_text(tokenizer, marked, line, LossOn::all) == "usermodelb");
}

TEST_CASE("answers: a conversation that begins with one is encoded") {
  const Tokenizer tokenizer = golden_tokenizer("qwen2");
  const ChatLine line = read("{\"messages\": [" + message("assistant", "hello") + ", " +
                             message("user", "a") + ", " + message("assistant", "b") + "]}");
  const std::string first = "{% if messages[0].role == 'system' %}{% endif %}";
  CHECK(counted_text(tokenizer, first + kPlain, line) == "hello<|im_end|>b<|im_end|>");
  // What stands in front of the first answer, and a thought that the prompt begins, are not the assistant's.
  CHECK(counted_text(tokenizer, "{{ 'assistant rules' }}" + kPlain, line) ==
        "hello<|im_end|>b<|im_end|>");
  std::string thinks = first + kPlain;
  thinks.replace(thinks.rfind("assistant:") + 10, 0, "<think>\\n");
  CHECK(counted_text(tokenizer, thinks, line) == "hello<|im_end|>b<|im_end|>");
}

TEST_CASE("answers: those whose place cannot be told are refused by name") {
  const Tokenizer tokenizer = golden_tokenizer("qwen2");
  const ChatLine line = read(two_answers("", ""));
  const auto refuses = [&](const std::string& chat_template, const std::string& error) {
    INFO(chat_template);
    CHECK_THROWS_WITH(
        counted_text(tokenizer, chat_template, line),
        Contains("t: the assistant's tokens cannot be found at message 1: " + error) &&
            Contains("{% generation %}") && Contains("loss_on all"));
  };
  const std::string end = "{% if add_generation_prompt %}<assistant>{% endif %}";
  // The header is another one than the prompt.
  refuses(
      "{% for m in messages %}{{ '[' ~ m.role ~ ']' if loop.last else m.role }}{{ m.content "
      "}}|{% endfor %}" +
          end,
      "the template renders what is in front of it otherwise than in a prompt");
  // An answer ends otherwise where others follow.
  refuses(
      "{% for m in messages %}<{{ m.role }}>{{ m.content ~ ('.' if loop.last else ',') }}{% "
      "endfor %}" +
          end,
      "the template renders what is in front of it otherwise than in a prompt");
  refuses(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.role == 'assistant' %}{{ '.' "
      "if loop.last else ',' }}{% endif %}{% endfor %}" +
          end,
      "the template renders what is behind it otherwise than where others follow");
  // The content of the message in front is left out.
  CHECK_THROWS_WITH(
      counted_text(tokenizer,
                   "{% for m in messages %}{% if m.role == 'assistant' or loop.last %}<{{ m.role "
                   "}}>{{ m.content }}{% endif %}{% endfor %}" +
                       end,
                   line),
      Contains("cannot be found at message 0: the text does not depend on its content"));
}

}  // namespace
}  // namespace dstrain
