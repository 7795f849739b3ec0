// Ranks that a user's own mpirun gave another configuration, other data or another program: nothing is
// trained, and one line says which ranks and what.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

// Two ranks with the words `first`, then two with `second`, of another `program` where one is given.
RunningProgram start_ranks(const RunFolder& folder, const std::string& first,
                           const std::string& second, const std::string& comm = "auto",
                           const std::string& program = DSTRAIN_PROGRAM) {
  const auto ranks = [&](const std::string& path, const std::string& words) {
    return " -np 2 " + path + " --config c.json " + folder.token() + " " + words;
  };
  return folder.start("mpirun --oversubscribe --bind-to none" + ranks(DSTRAIN_PROGRAM, first) +
                          " :" + ranks(program, second),
                      {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                       {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                       {"OMP_NUM_THREADS", "1"},
                       {"DSTRAIN_COMM", comm}});
}

// One rank that writes into the folder `output`.
void write_run(const RunFolder& folder, const std::string& output, const std::string& words) {
  RunningProgram program = folder.start(std::string(DSTRAIN_PROGRAM) +
                                        " --config c.json --output " + output + " " + words);
  REQUIRE(program.wait(60) == 0);
}

constexpr const char* kBeginning = "ranks 2-3 would compute another run than rank 0: ";

TEST_CASE("another configuration on some ranks is refused by its key, with both values") {
  const auto comm = GENERATE("auto", "mpi", "hosts:2");
  const RunFolder folder;
  RunningProgram program =
      start_ranks(folder, "--set optimizer.type=Adam --set optimizer.params.lr=0.001",
                  "--set optimizer.type=Adam --set optimizer.params.lr=0.5 --seed 8", comm);
  CHECK(program.wait(60) == 1);
  const std::string error = only_error(program.text());
  CAPTURE(error);
  CHECK(error.starts_with(kBeginning));
  CHECK(error.find("optimizer.params.lr: 0.5 there, 0.001 here") != std::string::npos);
  CHECK(error.find("dstrain.seed: 8 there, 1337 here") != std::string::npos);
  CHECK_FALSE(program.wrote("step="));
  CHECK_FALSE(fs::exists(folder.root / "out/metrics.jsonl"));
}

TEST_CASE("other data on some ranks is refused, data at another path is not") {
  const RunFolder folder;
  fs::create_directory(folder.root / "there");
  std::string text = folder.read("text.txt");
  SECTION("of another size") {
    folder.write("there/text.txt", text + text);
    RunningProgram program = start_ranks(folder, "", "--data there/text.txt");
    CHECK(program.wait(60) == 1);
    const std::string error = only_error(program.text());
    CHECK(error.starts_with(std::string(kBeginning) + "data (text.txt): 8800 bytes, "));
    CHECK(error.find(" there, 4400 bytes, ") != std::string::npos);
  }
  SECTION("of the same size and characters") {
    std::swap(text[5], text[6]);
    folder.write("there/text.txt", text);
    RunningProgram program = start_ranks(folder, "", "--data there/text.txt");
    CHECK(program.wait(60) == 1);
    CHECK(only_error(program.text())
              .starts_with(std::string(kBeginning) + "data (text.txt): 4400 bytes, "));
  }
  SECTION("the same elsewhere") {
    folder.write("there/text.txt", text);
    RunningProgram program = start_ranks(folder, "", "--data there/text.txt");
    CHECK(program.wait(60) == 0);
    CHECK(program.wrote("step=4 "));
  }
}

TEST_CASE("other weights, checkpoints or programs on some ranks are refused") {
  const RunFolder folder;
  SECTION("weights") {
    write_run(folder, "w1", "--steps 0 --seed 1");
    write_run(folder, "w2", "--steps 0 --seed 2");
    RunningProgram program = start_ranks(folder, "--init_weights w1/model.safetensors",
                                         "--init_weights w2/model.safetensors");
    CHECK(program.wait(60) == 1);
    CHECK(only_error(program.text())
              .starts_with(std::string(kBeginning) + "initial weights (model.safetensors): "));
  }
  SECTION("none at all") {
    write_run(folder, "w1", "--steps 0");
    RunningProgram program = start_ranks(folder, "", "--init_weights w1/model.safetensors");
    CHECK(program.wait(60) == 1);
    CHECK(only_error(program.text()).ends_with(" there, not given here"));
  }
  SECTION("checkpoints") {
    write_run(folder, "c2", "--save_interval 2 --steps 2");
    write_run(folder, "c4", "--save_interval 2 --steps 4");
    RunningProgram program = start_ranks(folder, "--resume c2 --steps 6", "--resume c4 --steps 6");
    CHECK(program.wait(60) == 1);
    const std::string error = only_error(program.text());
    CHECK(error.starts_with(std::string(kBeginning) + "checkpoint (step_2): step 4, "));
    CHECK(error.find(" there, step 2, ") != std::string::npos);
  }
  SECTION("programs") {
    const std::string other = folder.path("dstrain");
    fs::copy_file(DSTRAIN_PROGRAM, other);
    std::ofstream(other, std::ios::app) << "another build";
    RunningProgram program = start_ranks(folder, "", "", "auto", other);
    CHECK(program.wait(60) == 1);
    CHECK(only_error(program.text()).starts_with(std::string(kBeginning) + "program: "));
  }
}

}  // namespace
}  // namespace dstrain
