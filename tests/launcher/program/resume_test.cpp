// Going on with a run, from the shell's side: what is taken, what is set aside, what is refused.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/launcher/support/run_folder.h"
#include "tests/support/skip.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Runs the program, which must end well, in the folder; returns what it said.
std::string run(const RunFolder& folder, const std::string& options) {
  RunningProgram program =
      folder.start(std::string(DSTRAIN_PROGRAM) + " --config c.json " + options);
  const int status = program.wait(60);
  CAPTURE(options, program.text());
  REQUIRE(status == 0);
  return program.text();
}

// The same for one that is wrong; returns its one error, with the lines that belong to it.
std::string refusal(const RunFolder& folder, const std::string& options) {
  RunningProgram program =
      folder.start(std::string(DSTRAIN_PROGRAM) + " --config c.json " + options);
  CAPTURE(options);
  CHECK(program.wait(60) == 1);
  const std::string first = only_error(program.text());
  return program.text().substr(program.text().find(first));
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The steps of metrics.jsonl with their losses.
std::vector<std::pair<int64_t, double>> losses_of(const RunFolder& folder,
                                                  const std::string& output) {
  std::vector<std::pair<int64_t, double>> losses;
  std::istringstream lines(folder.read(output + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);)
    if (const json step = json::parse(line); step.contains("loss"))
      losses.emplace_back(step["step"], step["loss"]);
  return losses;
}

// The names in a folder of checkpoints; what follows "abandoned-" is cut.
std::vector<std::string> checkpoints_of(const RunFolder& folder, const std::string& output) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path(output + "/checkpoints"))) {
    std::string name = entry.path().filename().string();
    if (!name.starts_with("step_")) continue;
    if (const size_t at = name.find("abandoned"); at != std::string::npos) name.resize(at + 9);
    names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

using Names = std::vector<std::string>;

TEST_CASE(
    "a resume from an older checkpoint leaves the newer ones, and no later resume takes them") {
  const RunFolder folder;
  run(folder, "--steps 10 --save_interval 2 --output br");
  const std::string second = run(folder, "--resume br/checkpoints/step_2 --output br --steps 5");
  CHECK(has(second, "resumes after step 2 of br/checkpoints/step_2\n"));
  CHECK(checkpoints_of(folder, "br") == Names{"step_10.abandoned", "step_2", "step_4.abandoned",
                                              "step_6.abandoned", "step_8.abandoned"});
  const std::string third = run(folder, "--resume br --steps 12");
  CHECK(has(third, "resumes after step 2 of br/checkpoints/step_2\n"));
  const auto losses = losses_of(folder, "br");
  REQUIRE(losses.size() == 12);
  for (size_t i = 0; i < 12; ++i) CHECK(losses[i].first == static_cast<int64_t>(i) + 1);
  run(folder, "--steps 12 --output straight");
  CHECK(losses == losses_of(folder, "straight"));
  CHECK(folder.read("br/model.safetensors") == folder.read("straight/model.safetensors"));
}

TEST_CASE("what a branch saves is newest, whatever the steps of the branch that was left") {
  const RunFolder folder;
  run(folder, "--steps 10 --save_interval 2 --output br");
  run(folder, "--resume br/checkpoints/step_4 --steps 7 --save_interval 3");
  CHECK(
      has(run(folder, "--resume br --steps 8"), "resumes after step 6 of br/checkpoints/step_6\n"));
  // The branch that was left can be named, and is the run's line again.
  std::string left;
  for (const auto& entry : fs::directory_iterator(folder.path("br/checkpoints")))
    if (entry.path().filename().string().starts_with("step_10.abandoned")) left = entry.path();
  REQUIRE_FALSE(left.empty());
  CHECK(has(run(folder, "--resume " + left + " --steps 11"), "resumes after step 10 of "));
  CHECK(has(run(folder, "--resume br --steps 12"),
            "resumes after step 10 of br/checkpoints/step_10\n"));
}

TEST_CASE("the loss scale of a resumed run is its own, unless both runs adapt it") {
  const RunFolder folder;
  const std::string bf16 = " --set bf16.enabled=true",
                    fp16 = " --set fp16.enabled=true --set fp16.initial_scale_power=";
  const auto [before, after, expected] = GENERATE_COPY(table<std::string, std::string, double>({
      {fp16 + "6", fp16 + "6 --set fp16.loss_scale=128", 128},
      {fp16 + "6", fp16 + "9", 64},
      {bf16, fp16 + "6 --resume_with_changes", 64},
      {fp16 + "6", bf16 + " --resume_with_changes", 1},
  }));
  run(folder, "--steps 2 --save_interval 2 --output out" + before);
  run(folder, "--resume out --steps 3" + after);
  std::istringstream lines(folder.read("out/metrics.jsonl"));
  double scale = 0;
  for (std::string line; std::getline(lines, line);)
    scale = json::parse(line).value("loss_scale", scale);
  CHECK(scale == expected);
}

TEST_CASE("groups of the ranks of a host are no change") {
  const RunFolder folder;
  const std::string options =
      "--num_gpus 2 --save_interval 2 --steps 2 --set dstrain.sharding=HYBRID_SHARD "
      "--set zero_optimization.zero_quantized_gradients=true ";
  run(folder, options + "--output out");
  CHECK_FALSE(has(run(folder, options + "--resume out"), "warning: --resume: "));
}

TEST_CASE("a resume into another folder leaves both runs whole") {
  const RunFolder folder;
  run(folder, "--steps 6 --save_interval 2 --output one");
  run(folder, "--steps 8 --save_interval 4 --seed 7 --output two");
  CHECK(has(refusal(folder, "--resume one --output two"), "two holds the checkpoint of step 8"));
  run(folder, "--resume one --output two --overwrite --steps 7");
  CHECK(checkpoints_of(folder, "two").empty());
  CHECK(losses_of(folder, "two").front().first == 7);
  run(folder, "--resume one --output three --steps 8 --save_interval 2");
  CHECK(has(run(folder, "--resume one --steps 7"), "resumes after step 6 of one"));
  CHECK(has(run(folder, "--resume three --steps 9"), "resumes after step 8 of three"));
}

TEST_CASE(
    "what makes other numbers of a checkpoint is refused by name, unless the user accepts it") {
  const RunFolder folder;
  std::string text;
  for (int i = 0; i < 100; ++i) text += "the quick brown fox jumps over the lazy cat\n";
  text += "g?";
  folder.write("other.txt", text);  // 28 characters too, one of them another
  run(folder, "--steps 2 --save_interval 2 --output out");
  const std::string ranks = GENERATE("", " --num_gpus 2");
  const auto [option, name] = GENERATE(table<std::string, std::string>({
      {"--set dstrain.model.n_head=4", "dstrain.model.n_head was 2 and is 4"},
      {"--set dstrain.model.activation=gelu", "dstrain.model.activation was relu and is gelu"},
      {"--seed 7", "dstrain.seed was 1337 and is 7"},
      {"--set dstrain.data.order=sequential", "dstrain.data.order was random and is sequential"},
      {"--set optimizer.type=Adam --set optimizer.params.adam_w_mode=false",
       "optimizer.type was AdamW and is Adam"},
      {"--set optimizer.type=Lamb", "optimizer.type was AdamW and is Lamb"},
      {"--set bf16.enabled=true", "dtype was "},
      {"--data other.txt", "vocabulary was 28 characters, checksum "},
  }));
  const std::string options = "--resume out --steps 3 " + option + ranks;
  const std::string error = refusal(folder, options);
  CAPTURE(error);
  CHECK(
      error.starts_with("--resume: out/checkpoints/step_2 was saved by a run with other settings, "
                        "which change what the model learns; use those settings, or accept the "
                        "changes with --resume_with_changes:"));
  CHECK(has(error, "\n  " + name));
  CHECK(checkpoints_of(folder, "out") == Names{"step_2"});
  CHECK(has(run(folder, options + " --resume_with_changes"),
            "accepted by --resume_with_changes, these are no longer the numbers of one run\n"));
}

TEST_CASE("what the checkpoint has no tensors for is refused by name, and no option accepts it") {
  const RunFolder folder;
  run(folder, "--steps 2 --save_interval 2 --output out");
  const std::string how = GENERATE("", " --resume_with_changes --num_gpus 2");
  const auto [option, name] = GENERATE(table<std::string, std::string>({
      {"--set dstrain.model.n_layer=2", "dstrain.model.n_layer was 1 and is 2"},
      {"--set dstrain.model.n_embd=32", "dstrain.model.n_embd was 16 and is 32"},
      {"--set optimizer.type=Lion", "optimizer slots was exp_avg, exp_avg_sq and is exp_avg"},
      {"--set optimizer.type=Muon",
       "optimizer slots was exp_avg, exp_avg_sq and is exp_avg, exp_avg_sq, of matrices exp_avg "
       "alone"},
      {"--set optimizer.type=SGD", "optimizer slots was exp_avg, exp_avg_sq and is none"},
  }));
  const std::string error = refusal(folder, "--resume out --steps 3 " + option + how);
  CHECK(error ==
        "--resume: out/checkpoints/step_2 was saved by a run with other tensors; use its settings, "
        "or begin a new run (with its weights, --init_weights, if the model is the same):\n  " +
            name + "\n");
  CHECK(checkpoints_of(folder, "out") == Names{"step_2"});
}

TEST_CASE("the state of every optimizer is resumed, at another ZeRO stage too") {
  const RunFolder folder;
  const std::string type =
      GENERATE("Adagrad", "Lion", "Lamb", "Muon", "SGD --set optimizer.params.momentum=0.9");
  const std::string options = "--num_gpus 2 --set optimizer.type=" + type + " ";
  run(folder, options + "--steps 6 --output straight");
  run(folder, options + "--steps 3 --save_interval 3 --output out");
  run(folder, options + "--resume out --steps 6 --set zero_optimization.stage=1");
  CHECK(folder.read("out/model.safetensors") == folder.read("straight/model.safetensors"));
}

TEST_CASE("what a user may mean to change goes on, with a line that says what follows") {
  const RunFolder folder;
  std::string text;
  for (int i = 0; i < 100; ++i) text += "the lazy dog jumps over the quick brown fox\n";
  folder.write("other.txt", text);
  run(folder, "--steps 2 --save_interval 2 --output out");
  const auto [option, line] = GENERATE(table<std::string, std::string>({
      {"--set optimizer.type=AdamW --set optimizer.params.lr=0.0005",
       "optimizer.params.lr was 0.001 and is 0.0005: the new value holds from step 3 on"},
      {"", "dstrain.steps was 2 and is 3: the run ends after step 3"},
      {"--set train_batch_size=8", "train_batch_size was 4 and is 8: step 3 takes samples 8 to 15"},
      {"--data other.txt",
       "from step 3 on samples are those of the new data, beginning at place 8"},
  }));
  const std::string said = run(folder, "--resume out --steps 3 " + option);
  CAPTURE(said);
  CHECK(has(said, line));
}

TEST_CASE("a batch of another size goes on with the sample after the last one") {
  const RunFolder folder;
  // Weights that do not change, so that a loss says which samples it is of.
  const std::string fixed =
      "--set optimizer.type=SGD --set optimizer.params.lr=0 --set dstrain.model.dropout=0 ";
  run(folder, fixed + "--steps 6 --output straight");
  run(folder, fixed + "--steps 4 --save_interval 4 --output out");
  run(folder, fixed + "--resume out --steps 5 --set train_batch_size=8");
  const auto straight = losses_of(folder, "straight"), twice = losses_of(folder, "out");
  REQUIRE((straight.size() == 6 && twice.size() == 5));
  CHECK(twice[4].second == Approx((straight[4].second + straight[5].second) / 2).epsilon(1e-6));
  CHECK(std::abs(straight[4].second - straight[5].second) > 1e-4);
}

TEST_CASE("a damaged newest checkpoint is passed over with a warning for the one before") {
  const auto ranks = GENERATE("1", "2");
  const RunFolder folder;
  run(folder, "--steps 6 --save_interval 2 --output out");
  const std::string file = folder.path("out/checkpoints/step_6/rank_00000.safetensors");
  SECTION("cut short") {
    fs::resize_file(file, fs::file_size(file) / 2);
  }
  SECTION("with a flipped bit, which is found while it is read") {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(-2000, std::ios::end);
    const int old = bytes.get();
    bytes.seekp(-2000, std::ios::end);
    bytes.put(static_cast<char>(old ^ 1));
  }
  SECTION("without its manifest") {
    fs::remove(folder.path("out/checkpoints/step_6/manifest.json"));
  }
  const std::string said =
      run(folder, std::string("--resume out --steps 8 --save_interval 8 --num_gpus ") + ranks);
  CAPTURE(said);
  CHECK(has(said, "resumes after step 4 of out/checkpoints/step_4\n"));
  CHECK(has(said, "warning: --resume passes over step_6: "));
  run(folder, "--steps 8 --output straight");
  CHECK(losses_of(folder, "out").size() == 8);
  CHECK(has(run(folder, "--resume out --steps 9"),
            "resumes after step 8 of out/checkpoints/step_8\n"));
}

TEST_CASE(
    "a checkpoint under another one's name is refused, and passed over where it is not named") {
  const RunFolder folder;
  run(folder, "--steps 4 --save_interval 2 --output out");
  fs::copy(folder.path("out/checkpoints/step_4"), folder.path("out/checkpoints/step_8"),
           fs::copy_options::recursive);
  CHECK(refusal(folder, "--resume out/checkpoints/step_8") ==
        "out/checkpoints/step_8 holds step 4: it is another checkpoint under this one's name; use "
        "its own name\n");
  const std::string said = run(folder, "--resume out --steps 5");
  CHECK(has(said, "resumes after step 4 of out/checkpoints/step_4\n"));
  CHECK(has(said, "--resume passes over step_8: out/checkpoints/step_8 holds step 4"));
}

TEST_CASE("a resume takes the weights of its checkpoint, and --init_weights beside it is refused") {
  const RunFolder folder;
  run(folder, "--steps 2 --save_interval 1 --output out");
  CHECK(refusal(folder, "--resume out --steps 4 --init_weights nope") ==
        "--resume out takes the weights of its checkpoint, and --init_weights nope names others: "
        "leave out --init_weights to go on with the run, or --resume to begin one from nope\n");
  CHECK(has(run(folder, "--resume out --steps 4"), "resumes after step 2 of out/"));
}

TEST_CASE(
    "keep_last removes older checkpoints of the run, but every keep_every-th and what was left") {
  const RunFolder folder;
  run(folder, "--steps 3 --save_interval 1 --output out");
  run(folder,
      "--resume out/checkpoints/step_2 --steps 9 --save_interval 1 --set "
      "dstrain.keep_last=2 --set dstrain.keep_every=4");
  CHECK(checkpoints_of(folder, "out") == Names{"step_3.abandoned", "step_4", "step_8", "step_9"});
}

TEST_CASE("a run whose gradients are never finite again ends, naming step and tensor") {
  const RunFolder folder;
  RunningProgram program = folder.train(
      "--steps 100 --set bf16.enabled=true --set bf16.check_grad_overflow=true --set "
      "optimizer.type=SGD --set optimizer.params.lr=1e38 --set dstrain.max_skipped_steps=5");
  CHECK(program.wait(60) == 2);
  const std::string error = only_error(program.text());
  CAPTURE(program.text());
  CHECK(has(error, ", 5 steps in a row were skipped (dstrain.max_skipped_steps)"));
  CHECK(has(error, "the first gradient with a non-finite value is "));
  CHECK_FALSE(program.wrote("-nan"));
}

// The words that start the program with an output directory on a disk of so many kilobytes of its own; empty
// where this machine lets nobody make one.
std::string words_on_disk(const RunFolder& folder, int kilobytes, const std::string& options,
                          const std::string& then = "") {
  fs::create_directories(folder.root / "small");
  const std::string mount = "mount -t tmpfs -o size=" + std::to_string(kilobytes) + "k none small";
  if (folder.start("unshare -rm sh -c '" + mount + "' 2>/dev/null").wait() != 0) {
    return "";
  }
  return "unshare -rm sh -c '" + mount + " && " + (then.empty() ? "exec " : "") +
         DSTRAIN_PROGRAM " --config c.json --output small/out " + options + then + "'";
}

TEST_CASE("a disk without room for a checkpoint is found before the first step") {
  const RunFolder folder;
  const std::string words = words_on_disk(folder, 64, "--save_interval 2");
  SKIP_UNLESS(!words.empty(), "this machine lets nobody make a small file system");
  RunningProgram program = folder.start(words);
  CHECK(program.wait(60) == 1);
  const std::string error = only_error(program.text());
  CAPTURE(error);
  CHECK(error.starts_with("a checkpoint with the weights needs "));
  CHECK(has(error, "are free in small/out: make room there, or name another directory"));
  CHECK_FALSE(program.wrote("step=1 "));
}

// The steps of the checkpoints in a run's output directory on a small disk, which the command prints at its end.
std::string on_filling_disk(const RunFolder& folder, const std::string& options, int status,
                            int kilobytes = 400) {
  const std::string words = words_on_disk(
      folder, kilobytes, options,
      "; status=$?; ls "
      "small/out/checkpoints small/out; cat small/out/metrics.jsonl | wc -l; exit $status");
  if (words.empty()) return "";
  RunningProgram program = folder.start(words);
  CAPTURE(options, program.wait(60), program.text());
  CHECK(program.wait(60) == status);
  return program.text();
}

TEST_CASE("a checkpoint for which a disk has no room is left out, and the run goes on") {
  const RunFolder folder;
  const std::string ranks = GENERATE("1", "2");
  const std::string text =
      on_filling_disk(folder, "--steps 20 --save_interval 2 --num_gpus " + ranks, 0);
  SKIP_UNLESS(!text.empty(), "this machine lets nobody make a small file system");
  CHECK(has(text, "warning: the checkpoint of step "));
  CHECK(has(text, " kB, is left out: "));
  CHECK(has(text, "step_2\n"));
  CHECK_FALSE(has(text, "step_20\n"));
  CHECK_FALSE(has(text, ".tmp\n"));
  CHECK(has(text, "done: step 20 of 20"));
  CHECK(has(text, "model.safetensors\n"));
  CHECK(
      has(text, "\n30\n"));  // lines of metrics.jsonl: every step, and a validation of every second
}

TEST_CASE("save_required ends a run whose checkpoint has no room, and keep_last makes room first") {
  const RunFolder folder;
  const std::string run = "--steps 20 --save_interval 2 --set dstrain.save_required=true";
  const std::string ends = on_filling_disk(folder, run, 2);
  SKIP_UNLESS(!ends.empty(), "this machine lets nobody make a small file system");
  CHECK(has(ends, "dstrain: error: saving step "));
  CHECK(has(ends, "are free in small/out/checkpoints: make room there; dstrain.keep_last removes"));
  // The disk has room for so many checkpoints, and on two ranks for a part of a further one.
  const auto [ranks, checkpoints] = GENERATE(table<int, int>({{1, 5}, {2, 4}}));
  const std::string kept =
      on_filling_disk(folder,
                      run + " --set dstrain.keep_last=" + std::to_string(checkpoints) +
                          " --num_gpus " + std::to_string(ranks),
                      0);
  CHECK_FALSE(has(kept, "is left out"));
  CHECK(has(kept, "step_20\n"));
}

TEST_CASE("a checkpoint at the end that has no room costs a warning, and no weights") {
  const RunFolder folder;
  const std::string text = on_filling_disk(folder, "--set dstrain.save_last=true", 0, 80);
  SKIP_UNLESS(!text.empty(), "this machine lets nobody make a small file system");
  CHECK(has(text, "warning: the checkpoint at the end, with the weights needs "));
  CHECK(has(text, "warning: the checkpoint of step 4, of "));
  CHECK(has(text, "model.safetensors\n"));
}

}  // namespace
}  // namespace dstrain
