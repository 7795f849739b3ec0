#include "launcher/ranks/rank_environment.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/core/error.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

// "A=1 B=2", or the error.
std::string made_of(const EnvironmentSources& sources) {
  try {
    std::string text;
    for (const auto& [name, value] : rank_environment(sources).variables)
      text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
    return text;
  } catch (const UserError& e) {
    return e.what();
  }
}

std::string of_file(const std::string& text) {
  return made_of({{}, {{".deepspeed_env", text}}, {}});
}

TEST_CASE("what concerns communication, threads and instruction sets passes by itself") {
  CHECK(made_of({{{"NCCL_DEBUG", "INFO"},
                  {"UCX_TLS", "tcp"},
                  {"OMPI_MCA_btl", "tcp,self"},
                  {"OMP_NUM_THREADS", "4"},
                  {"DSTRAIN_MAX_ISA", "avx2"},
                  {"HOME", "/root"},
                  {"PYTHONPATH", "x"},
                  {"OMP_WAIT_POLICY", "passive"},
                  {"MY_NCCL_DEBUG", "x"}},
                 {},
                 {}}) ==
        "DSTRAIN_MAX_ISA=avx2 NCCL_DEBUG=INFO OMPI_MCA_btl=tcp,self OMP_NUM_THREADS=4 "
        "UCX_TLS=tcp");
}

TEST_CASE("--export beats the files, a later file an earlier one, a file what passes by itself") {
  const EnvironmentSources sources{
      {{"NCCL_DEBUG", "own"}, {"A", "own"}, {"B", "own"}},
      {{"home", "NCCL_DEBUG=home\nC=home\nD=home\n"}, {"here", "C=here\nB=here\nE=here\n"}},
      {"A", "B", "E=flag", "F=1", "F=2"}};
  CHECK(made_of(sources) == "A=own B=own C=here D=home E=flag F=2 NCCL_DEBUG=home");
}

TEST_CASE("a file has NAME=VALUE lines, values taken as they are") {
  CHECK(of_file("# comment\n\nA=1\r\n  B = two words \nC=x=y\nD=\nE=$(id) ;#'\n") ==
        "A=1 B=two words C=x=y D= E=$(id) ;#'");
  CHECK(of_file("") == "");
  CHECK(of_file("\xef\xbb\xbf"
                "A=1\n") == "A=1");
  const RankEnvironment quoted = rank_environment({{}, {{"f", "A=1\nB=\"x\"\n"}}, {}});
  CHECK(quoted.variables == Environment{{"A", "1"}, {"B", "\"x\""}});
  CHECK(quoted.warnings == std::vector<std::string>{"f:2: the quotes are part of B's value"});
}

TEST_CASE("a line that is none is an error with file and line") {
  const auto [text, got] = GENERATE(table<std::string, std::string>({
      {"A=1\nB\n", "2: expected NAME=VALUE with a name of letters, digits and _, got 'B'"},
      {"=1", "1: expected NAME=VALUE with a name of letters, digits and _, got '=1'"},
      {"export A=1",
       "1: expected NAME=VALUE with a name of letters, digits and _, got 'export A=1'"},
      {"1A=1", "1: expected NAME=VALUE with a name of letters, digits and _, got '1A=1'"},
      {"A;id=1", "1: expected NAME=VALUE with a name of letters, digits and _, got 'A;id=1'"},
      {std::string("A=\0", 3),
       "1: expected NAME=VALUE with a name of letters, digits and _, got 'A=?'"},
  }));
  CHECK(of_file(text) == ".deepspeed_env:" + got);
}

TEST_CASE("an exported name without a value is one of the launching process") {
  CHECK(made_of({{{"A", ""}}, {}, {"A"}}) == "A=");
  CHECK(made_of({{}, {}, {"A"}}) ==
        "--export A: there is no such variable here: set it, or use --export A=VALUE");
}

TEST_CASE("what mpirun would hand to a shell unquoted is refused for other hosts") {
  CHECK_NOTHROW(
      check_for_ssh({{"OMPI_MCA_btl", "^openib"}, {"NCCL_X", "$(id)"}, {"OMPI_MCA_x", ""}},
                    {"--mca", "btl_tcp_if_include", "10.0.0.0/8,eth0", "a=b"}));
  for (const std::string text : {"$(id)", "a b", "`id`", "a;id", "a\"b", "'", "a\nb", "*", "~"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(check_for_ssh({{"OMPI_MCA_x", text}}, {}), UserError);
    CHECK_THROWS_AS(check_for_ssh({}, {"--mca", "x", text}), UserError);
  }
  CHECK_THROWS_WITH(check_for_ssh({{"OMPI_MCA_x", "$(id)"}}, {}),
                    "OMPI_MCA_x is '$(id)', and mpirun hands it to other hosts' shells as it is: "
                    "expected letters, digits and / . , : ^ = @ + _ -");
  CHECK_THROWS_WITH(check_for_ssh({}, {"a b"}),
                    "--launcher_args has 'a b', and mpirun hands it to other hosts' shells as it "
                    "is: expected letters, digits and / . , : ^ = @ + _ -");
}

// Sets a variable for its life.
class ChangedVariable {
 public:
  ChangedVariable(const char* name, const std::string& value) : name_(name) {
    const char* before = std::getenv(name);
    if (before != nullptr) before_ = before;
    had_ = before != nullptr;
    ::setenv(name, value.c_str(), 1);
  }
  ~ChangedVariable() {
    if (had_)
      ::setenv(name_, before_.c_str(), 1);
    else
      ::unsetenv(name_);
  }

 private:
  const char* name_;
  std::string before_;
  bool had_ = false;
};

std::vector<std::string> paths_of(const EnvironmentSources& sources) {
  std::vector<std::string> paths;
  for (const EnvironmentSources::File& file : sources.files) paths.push_back(file.path);
  return paths;
}

TEST_CASE("the files are those of the home directory and the present one, or $DS_ENV_FILE") {
  const TempDir dir;
  const fs::path place = dir.path(), before = fs::current_path();
  fs::create_directories(place / "home");
  fs::create_directories(place / "here");
  fs::current_path(place / "here");
  {
    const ChangedVariable home("HOME", (place / "home").string());
    CHECK(environment_sources({}).files.empty());
    std::ofstream(place / "home/.deepspeed_env") << "A=home\n";
    std::ofstream(place / "here/.deepspeed_env") << "A=here\n";
    std::ofstream(place / "here/other") << "A=other\n";
    const EnvironmentSources both = environment_sources({"B=1"});
    CHECK(paths_of(both) ==
          std::vector<std::string>{(place / "home/.deepspeed_env").string(), ".deepspeed_env"});
    CHECK(both.files[1].text == "A=here\n");
    CHECK(both.exports == std::vector<std::string>{"B=1"});
    CHECK(both.own.at("HOME") == (place / "home").string());
    {
      const ChangedVariable another("DS_ENV_FILE", "other");
      CHECK(paths_of(environment_sources({})) == std::vector<std::string>{"other"});
    }
    {
      const ChangedVariable path("DS_ENV_FILE", (place / "here/other").string());
      CHECK(paths_of(environment_sources({})) ==
            std::vector<std::string>{(place / "here/other").string()});
    }
    fs::create_directory(place / "home/other");  // for another purpose
    {
      const ChangedVariable another("DS_ENV_FILE", "other");
      CHECK(paths_of(environment_sources({})) == std::vector<std::string>{"other"});
    }
    {
      const ChangedVariable none("DS_ENV_FILE", "");
      CHECK(environment_sources({}).files.empty());
    }
  }
  {
    const ChangedVariable home("HOME", (place / "here").string());
    CHECK(paths_of(environment_sources({})) == std::vector<std::string>{".deepspeed_env"});
  }
  fs::current_path(before);
}

TEST_CASE("$DS_ENV_FILE must name a file that can be read") {
  const TempDir dir;
  const std::string named = " that DS_ENV_FILE names, ", pipe = dir / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const auto error = [](const std::string& name) {
    const ChangedVariable variable("DS_ENV_FILE", name);
    try {
      environment_sources({});
      return std::string("no error");
    } catch (const UserError& e) {
      return std::string(e.what());
    }
  };
  CHECK(error(dir / "none") == "cannot read the file of variables" + named + (dir / "none") +
                                   ": No such file or directory");
  CHECK(error(dir.path()) ==
        "the file of variables" + named + dir.path() + " is a directory, expected a file");
  CHECK(error(pipe) == "the file of variables" + named + pipe +
                           " is a pipe, expected a regular file: save what it gives in one");
  const ChangedVariable home("HOME", dir.path());
  CHECK(error("no_such_name") ==
        "cannot read the file of variables, in the home directory or here, that DS_ENV_FILE names, "
        "no_such_name: No such file or directory");
}

TEST_CASE("ranks do not get the secret of their run") {
  EnvironmentSources sources;
  sources.own = {{"DSTRAIN_SECRET", "0123456789abcdef"}};
  CHECK(rank_environment(sources).variables.empty());
  sources.files = {{".deepspeed_env", "A=1\nDSTRAIN_SECRET=0123456789abcdef\n"}};
  const RankEnvironment result = rank_environment(sources);
  CHECK(result.variables == Environment{{"A", "1"}});
  CHECK(result.warnings ==
        std::vector<std::string>{"DSTRAIN_SECRET in a file of variables has no effect: ranks do "
                                 "not get the secret"});
  for (const std::string text : {"DSTRAIN_SECRET", "DSTRAIN_SECRET=0123456789abcdef"}) {
    sources.exports = {text};
    CHECK_THROWS_WITH(rank_environment(sources),
                      "--export DSTRAIN_SECRET: ranks do not get the secret: leave it out");
  }
}

}  // namespace
}  // namespace dstrain
