#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "runtime/core/error.h"
#include "runtime/engine/metrics/metrics_file.h"
#include "runtime/engine/metrics/metrics_log.h"
#include "runtime/engine/metrics/metrics_text.h"
#include "tests/support/error_terminal.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

// A directory that the destructor removes.
struct Scratch {
  Scratch() {
    path = (fs::temp_directory_path() / "dstrain_metrics_XXXXXX").string();
    REQUIRE(::mkdtemp(path.data()) != nullptr);
  }
  ~Scratch() { fs::remove_all(path); }
  std::string file() const { return path + "/metrics.jsonl"; }
  std::string text() const {
    std::ostringstream all;
    all << std::ifstream(file()).rdbuf();
    return all.str();
  }
  std::string path;
};

std::string validation_json(int64_t step, double loss, const NamedLosses& losses = {}) {
  return to_json(ValidationMetrics{.step = step, .loss = loss, .losses = losses});
}

StepMetrics example() {
  return {.step = 7,
          .loss = 0.1,
          .lr = 1e-4f,
          .grad_norm = 0.5f,
          .loss_scale = 65536,
          .skipped = true,
          .tokens = 512,
          .samples_per_second = 12.5,
          .step_ms = 80,
          .peak_bytes = 1'500'000'000,
          .comm_bytes = 4096};
}

TEST_CASE("bytes of the host and of disks are in the file where there are any") {
  StepMetrics metrics;
  CHECK(to_json(metrics).find("host_bytes") == std::string::npos);
  metrics.host_bytes = 12;
  CHECK(to_json(metrics).ends_with(",\"comm_bytes\":0,\"host_bytes\":12}\n"));
  metrics.disk_bytes = 34;
  CHECK(to_json(metrics).ends_with(",\"host_bytes\":12,\"disk_bytes\":34}\n"));
  metrics.codec_error = {{"weights", 0.0031}, {"gradients", NAN}};
  CHECK(to_json(metrics).ends_with(
      "\"disk_bytes\":34,\"codec_error\":{\"weights\":0.0031,\"gradients\":null}}\n"));
  CHECK_THAT(log_line(metrics), Catch::Contains(" codec_error weights=0.0031 gradients="));
}

TEST_CASE("a number that is none has no sign in the log") {
  StepMetrics metrics;
  metrics.loss = -std::numeric_limits<double>::quiet_NaN();
  metrics.grad_norm = -std::numeric_limits<float>::quiet_NaN();
  const std::string line = log_line(metrics);
  CHECK(line.find("loss=nan ") != std::string::npos);
  CHECK(line.find("grad_norm=nan ") != std::string::npos);
  metrics.loss = -std::numeric_limits<double>::infinity();
  CHECK(log_line(metrics).find("loss=-inf ") != std::string::npos);
}

TEST_CASE("a step is one JSON line in the contract's order") {
  CHECK(to_json(example()) ==
        R"({"step":7,"loss":0.1,"lr":1e-04,"grad_norm":0.5,"loss_scale":65536,"skipped":true,)"
        R"("tokens":512,"samples_per_second":12.5,"step_ms":80,"peak_bytes":1500000000,)"
        R"("comm_bytes":4096})"
        "\n");
  CHECK(validation_json(9, 1.75) == "{\"step\":9,\"val_loss\":1.75}\n");
  CHECK(validation_json(9, 1.75, {{"a", 1.5}, {"b", 0.25}}) ==
        "{\"step\":9,\"val_loss\":1.75,\"val_losses\":{\"a\":1.5,\"b\":0.25}}\n");
  StepMetrics several = example();
  several.losses = {{"early", 0.5}, {"loss", 0.25}};
  CHECK(nlohmann::json::parse(to_json(several))["losses"] ==
        nlohmann::json{{"early", 0.5}, {"loss", 0.25}});
  CHECK_FALSE(nlohmann::json::parse(to_json(example())).contains("losses"));
  several.metrics = {{"accuracy", 0.75}, {"a \"b\"", NAN}};
  const nlohmann::json with_metrics = nlohmann::json::parse(to_json(several));
  CHECK(with_metrics["accuracy"] == 0.75);
  CHECK(with_metrics["a \"b\""].is_null());
  CHECK(to_json(ValidationMetrics{.step = 9, .loss = 1.75, .metrics = {{"accuracy", 0.5}}}) ==
        "{\"step\":9,\"val_loss\":1.75,\"val_accuracy\":0.5}\n");
}

TEST_CASE("numbers read back as the same bits") {
  StepMetrics m = example();
  for (double loss : {1.0 / 3, 5e-324, 1.7976931348623157e308, -0.0, 123456789.123456789}) {
    m.loss = loss;
    CHECK(nlohmann::json::parse(to_json(m))["loss"].get<double>() == loss);
  }
}

TEST_CASE("non-finite numbers are null") {
  StepMetrics m = example();
  m.loss = std::numeric_limits<double>::quiet_NaN();
  m.grad_norm = std::numeric_limits<float>::infinity();
  const auto object = nlohmann::json::parse(to_json(m));
  CHECK(object["loss"].is_null());
  CHECK(object["grad_norm"].is_null());
  CHECK(nlohmann::json::parse(validation_json(1, -std::numeric_limits<double>::infinity()))
            .at("val_loss")
            .is_null());
}

TEST_CASE("the log line holds what the contract names") {
  const std::string line = log_line(example());
  for (const char* part : {"step=7", "loss=0.1000", "lr=0.0001", "grad_norm=0.5", "samples/s=12.5",
                           "mem=1.50GB", "loss_scale=65536", "update skipped"}) {
    CAPTURE(line, part);
    CHECK(line.find(part) != std::string::npos);
  }
}

TEST_CASE("a skipped step says whether its gradients overflowed or its batch has no target") {
  StepMetrics m = example();
  CHECK(log_line(m).ends_with("(overflow: update skipped)"));
  m.tokens = 0;
  CHECK(log_line(m).ends_with("(no token counts in the loss: update skipped)"));
}

TEST_CASE("the lines of a step's phases have DeepSpeed's names") {
  const PhaseTimes times{
      .forward = 1.234, .backward_inner = 2, .backward_allreduce = 0.5, .step = 0.25};
  CHECK(micro_batch_line(times) ==
        "time (ms) | fwd_microstep: 1.23 | bwd_microstep: 2.50 | bwd_inner_microstep: 2.00 | "
        "bwd_allreduce_microstep: 0.50 | step_microstep: 0.25");
  CHECK(phases_line(times) ==
        "time (ms) | fwd: 1.23 | bwd: 2.50 | bwd_inner: 2.00 | bwd_allreduce: 0.50 | step: 0.25");
  CHECK(messages_line({.send_output = 1, .send_grad = 2, .recv_input = 3, .recv_grad = 4}) ==
        "time (ms) | pipe_send_output: 1.00 | pipe_send_grad: 2.00 | pipe_recv_input: 3.00 | "
        "pipe_recv_grad: 4.00");
}

TEST_CASE("small runs tell their memory in megabytes") {
  StepMetrics m = example();
  m.peak_bytes = 2'813'504;
  CHECK(log_line(m).find("mem=2.81MB") != std::string::npos);
}

TEST_CASE("durations are short and honest") {
  CHECK(duration_text(0) == "0s");
  CHECK(duration_text(59.4) == "59s");
  CHECK(duration_text(187) == "3m07s");
  CHECK(duration_text(7500) == "2h05m");
  CHECK(duration_text(5 * 86400 + 3 * 3600) == "5d03h");
  CHECK(duration_text(-1) == "?");
  CHECK(duration_text(std::numeric_limits<double>::quiet_NaN()) == "?");
}

TEST_CASE("the median of step times ignores an outlier and forgets old steps") {
  StepTimes times;
  CHECK(times.median() == 0);
  times.add(1000);
  CHECK(times.median() == 1000);
  times.add(10);
  CHECK(times.median() == 505);
  times.add(12);
  CHECK(times.median() == 12);
  for (int i = 0; i < 40; ++i) times.add(20);
  CHECK(times.median() == 20);
}

TEST_CASE("a fresh run replaces the file and appends line by line") {
  const Scratch scratch;
  std::ofstream(scratch.file()) << "old\n";
  MetricsFile writer(scratch.file());
  CHECK(scratch.text().empty());
  StepMetrics m = example();
  m.step = 1;
  writer.step(m);
  CHECK(scratch.text() == to_json(m));  // seen while the writer is open: nothing is held back
  writer.validation({.step = 1, .loss = 2.5});
  CHECK(scratch.text() == to_json(m) + validation_json(1, 2.5));
}

TEST_CASE("a resumed run keeps the lines up to its checkpoint, and drops later and torn ones") {
  const Scratch scratch;
  const std::string kept =
      "{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\":1}\n{\"step\":2,\"val_loss\":3}\n";
  SECTION("later lines") {
    std::ofstream(scratch.file()) << kept << "{\"step\":3,\"loss\":9}\n";
  }
  SECTION("a torn line") {
    std::ofstream(scratch.file()) << kept << "{\"step\":2,\"lo";
  }
  SECTION("something else") {
    std::ofstream(scratch.file()) << kept << "not json\n" << kept;
  }
  const MetricsFile writer(scratch.file(), 2);
  CHECK(scratch.text() == kept);
}

// Waits until the live line may be drawn again.
void pause_for_redraw() {
  std::this_thread::sleep_for(std::chrono::milliseconds(110));
}

TEST_CASE("the live line is there before the first step, after steps and during a validation") {
  const ErrorTerminal terminal;
  MetricsLog writer({.steps = 9, .steps_per_print = 0, .tokens = true});
  writer.begin();
  CHECK(terminal.text() == "\r\x1b[Kstep 0/9 | first step");
  pause_for_redraw();
  StepMetrics metrics = example();
  metrics.skipped = false;
  writer.step(metrics);
  CHECK(terminal.text() ==
        "\r\x1b[Kstep 7/9 | loss 0.1000 | 0s left | 6.4k tokens/s | 12.5 samples/s | mem 1.50GB");
  writer.validation({.step = 7, .loss = 2.5});  // a line above it
  CHECK_THAT(terminal.text(), Catch::StartsWith("\r\x1b[K\r\x1b[Kstep 7/9 | loss 0.1000"));
  pause_for_redraw();
  writer.validating(7, 3, 20);
  CHECK(terminal.text() == "\r\x1b[Kstep 7/9 | validation 3/20");
}

TEST_CASE("the live line says for how long nothing has happened") {
  const ErrorTerminal terminal;
  MetricsLog writer({.steps = 9, .steps_per_print = 0, .quiet_seconds = 0.02});
  writer.begin();
  std::string text;
  for (int i = 0; i < 1000 && text.find("step 0/9 (0s ago) | first step") == std::string::npos;
       ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    text += terminal.text();
  }
  CHECK_THAT(text, Catch::Contains("\r\x1b[Kstep 0/9 (0s ago) | first step"));
}

TEST_CASE("the live line has the most important first, and tokens where a model has some") {
  StepMetrics metrics = example();
  CHECK(live_text(metrics, {.steps = 1007, .step_ms = 90, .tokens = true}) ==
        "loss 0.1000 | 1m30s left | 5.69k tokens/s | 11.1 samples/s | mem 1.50GB");
  CHECK(live_text(metrics, {.steps = 1007, .step_ms = 90}) ==
        "loss 0.1000 | 1m30s left | 11.1 samples/s | mem 1.50GB");
  CHECK(live_text(metrics, {.steps = 7, .full_rate_s = 1, .tokens = true}) ==
        "loss 0.1000 | 0s left | ? tokens/s | ? samples/s | mem 1.50GB");
}

TEST_CASE("the live line says how much of the speed of its processors a step reaches") {
  const auto end_of = [](double full_rate_s) {
    const std::string text = live_text(
        example(), {.steps = 7, .step_ms = 200, .full_rate_s = full_rate_s, .tokens = true});
    return text.substr(text.rfind("samples/s") + 9);
  };
  CHECK(end_of(0.086) == " | MFU 43% | mem 1.50GB");
  CHECK(end_of(0.0066) == " | MFU 3.3% | mem 1.50GB");
  CHECK(end_of(0.1999) == " | MFU 100% | mem 1.50GB");
  CHECK(end_of(1e-7) == " | MFU 0.0% | mem 1.50GB");
  CHECK(end_of(0) == " | mem 1.50GB");
}

TEST_CASE("a sink that takes steps and validations alone ignores the rest") {
  const Scratch scratch;
  MetricsFile file(scratch.file());
  MetricsSink& sink = file;
  sink.begin();
  sink.validating(0, 1, 2);
  CHECK(scratch.text().empty());
  sink.validation({.step = 0, .loss = 2.5});
  sink.end({.steps = 1, .loss = 2});
  CHECK(scratch.text() == validation_json(0, 2.5));
}

TEST_CASE("the end of a run takes the live line away, and is a line") {
  const ErrorTerminal terminal;
  MetricsLog writer({.steps = 9, .steps_per_print = 0, .output = "runs/c"});
  writer.begin();
  CHECK_THAT(terminal.text(), Catch::Contains("step 0/9 | first step"));
  writer.end({.steps = 9, .seconds = 1, .loss = 2});
  CHECK(terminal.text() == "\r\x1b[K");
}

TEST_CASE("a directory that is not there is an error that names the file") {
  const Scratch scratch;
  const std::string path = scratch.file() + ".none/metrics.jsonl";
  CHECK_THROWS_AS(MetricsFile(path), RunError);
  CHECK_THROWS_WITH(MetricsFile(path), "cannot write " + path + ": No such file or directory");
}

TEST_CASE("a resumed file is read as far as it has lines, and is not what its name leads to") {
  const Scratch scratch;
  const std::string begin = "{\"step\":1}\n{\"step\":2}\n";
  std::ofstream(scratch.file()) << begin;
  std::filesystem::resize_file(scratch.file(),
                               uintmax_t{1} << 38);  // a line that memory cannot hold
  { const MetricsFile writer(scratch.file(), 3); }
  CHECK(std::filesystem::file_size(scratch.file()) == begin.size());
  std::filesystem::rename(scratch.file(), scratch.path + "/other");
  std::filesystem::create_symlink("other", scratch.file());
  CHECK_THROWS_WITH(MetricsFile(scratch.file(), 3), Catch::Contains("it is a symbolic link"));
  CHECK(std::filesystem::file_size(scratch.path + "/other") == begin.size());
}

TEST_CASE("a full disk costs the lines that it has no room for, and leaves no half line") {
  const Scratch scratch;
  MetricsFile writer(scratch.file());
  writer.step(example());
  const std::string before = scratch.text();

  // A file size limit acts like a full disk: the first write is incomplete.
  rlimit old{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{before.size() + 20, old.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &tight) == 0);
  writer.step(example());
  writer.validation({.step = example().step, .loss = 2.5});
  const std::string full = scratch.text();
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &old) == 0);
  std::signal(SIGXFSZ, old_handler);
  CHECK(full == before);
  writer.validation({.step = 9, .loss = 3.5});
  CHECK(scratch.text() == before + validation_json(9, 3.5));
}

TEST_CASE("a resumed run without a step left does not repeat the validation of its step") {
  const Scratch scratch;
  std::ofstream(scratch.file()) << validation_json(2, 3);
  MetricsFile writer(scratch.file(), 2);
  writer.validation({.step = 2, .loss = 3});
  CHECK(scratch.text() == validation_json(2, 3));
  writer.validation({.step = 4, .loss = 2});
  CHECK(scratch.text() == validation_json(2, 3) + validation_json(4, 2));
}

TEST_CASE("a validation's line in the log has the perplexity of a language model") {
  CHECK(validation_text({.loss = 3.0311}, true) == "validation loss 3.0311, perplexity 20.72");
  CHECK(validation_text({.loss = 3.0311, .metrics = {{"accuracy", 0.25}, {"ppl", NAN}}}, false) ==
        "validation loss 3.0311, accuracy 0.2500, ppl nan");
}

}  // namespace
}  // namespace dstrain
