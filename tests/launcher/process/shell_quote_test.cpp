#include "runtime/config/shell_quote.h"

#include <catch2/catch.hpp>
#include <random>

#include "runtime/core/error.h"
#include "tests/launcher/support/processes.h"

namespace dstrain {
namespace {

// What a shell makes of a command line: `printf` writes each word it is given and a line's end.
std::string said_by(const std::string& shell, const std::vector<std::string>& words) {
  std::vector<std::string> command = {"/usr/bin/printf", "%s\n"};
  command.insert(command.end(), words.begin(), words.end());
  RunningProgram program({"/bin/" + shell, "-c", shell_command(command)}, {});
  CHECK(program.wait() == 0);
  return program.text();
}

std::string lines(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += word + "\n";
  return text;
}

TEST_CASE("a shell reads hostile words as they are") {
  const std::string shell = GENERATE("sh", "bash");
  std::vector<std::string> words = {
      "plain",      "",       " ",      "two words", "a;id",     "$(id)",    "`id`",
      "${HOME}",    "$HOME",  "'",      "''",        "it's",     "'; id; '", "\"",
      "\"quoted\"", "\\",     "\\'",    "a\\",       "*",        "?",        "[a-z]",
      "{a,b}",      "~",      "~root",  "!",         "!!",       "#",        "# no comment",
      "a#b",        "&",      "a && b", "|",         ">out",     "<in",      "2>&1",
      "(id)",       "A=b",    "=ls",    "%1",        "-n",       "--",       "-oProxyCommand=id",
      "a\nb",       "\n",     "a\tb",   "\r",        "\x1b[31m", "\x7f",     "\xff\xfe",
      "\xc3\xb6",   "$'\\n'", "<(id)",  "^a^b",      "\\\n"};
  for (int byte = 1; byte < 256; ++byte) words.emplace_back(1, static_cast<char>(byte));
  CHECK(said_by(shell, words) == lines(words));
}

TEST_CASE("a shell reads words of any bytes as they are") {
  std::mt19937 random(1);
  std::vector<std::string> words(500);
  for (std::string& word : words)
    for (size_t left = random() % 40; left > 0; --left)
      word += random() % 2 == 0 ? "'\"\\$`; \n!*"[random() % 10]
                                : static_cast<char>(1 + random() % 255);
  CHECK(said_by("sh", words) == lines(words));
}

TEST_CASE("the first word is a program, never a keyword or an assignment") {
  for (const std::string word : {"if", "A=b", "!", "{", "time"}) {
    CAPTURE(word);
    RunningProgram program({"/bin/sh", "-c", shell_command({word, "x"})}, {});
    CHECK((word == "time" || program.wait() == 127));  // not found; `time` may be installed
  }
}

TEST_CASE("words that no shell touches stay readable") {
  CHECK(shell_command({"/usr/bin/dstrain", "--config", "a/b-c.json", "x=1", "a b", ""}) ==
        "/usr/bin/dstrain --config a/b-c.json 'x=1' 'a b' ''");
  CHECK(shell_quoted("root@node1:22") == "root@node1:22");
  CHECK(shell_quoted("it's") == "'it'\\''s'");
}

}  // namespace
}  // namespace dstrain
