// The verdicts on offload and on the device's memory.
#include <catch2/catch.hpp>

#include "tests/config/verdict_cases.h"

using namespace dstrain;
using namespace dstrain::test;

TEST_CASE("verdicts: offload") {
  check_all({
      {zero(R"("offload_param": {"device": "none", "pin_memory": true})"),
       "zero_optimization.offload_param", "no_effect"},
      {zero(R"("offload_param": {"device": "none", "pin_memory": true})"),
       "zero_optimization.offload_param.pin_memory", "no_effect: offload is off"},
      {zero(R"("offload_param": {"device": "cpu", "pin_memory": true})"),
       "zero_optimization.offload_param.device", "no_effect: matters at stage 3; the stage is 0"},
      {zero(R"("stage": 3, "offload_param": {"device": "cpu"})"),
       "zero_optimization.offload_param.device",
       "honoured: parameters are in the host's memory, and gathered from there"},
      {zero(R"("stage": 3, "offload_param": {"device": "cpu", "pin_memory": false})"),
       "zero_optimization.offload_param.pin_memory", "honoured"},
      {zero(R"("stage": 3, "offload_param": {"device": "nvme"})"),
       "zero_optimization.offload_param.device",
       "error: nvme needs nvme_path: a directory on the drive, or one for each"},
      {zero(R"("stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/a"})"),
       "zero_optimization.offload_param.device",
       "honoured: parameters are on disk, but for the first max_in_cpu of a rank"},
      {zero(R"("stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/a"})"),
       "zero_optimization.offload_param.nvme_path", "honoured"},
      {zero(
           R"("stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/a", "max_in_cpu": 9})"),
       "zero_optimization.offload_param.max_in_cpu", "honoured"},
      {zero(R"("stage": 3, "offload_param": {"device": "cpu", "max_in_cpu": 9})"),
       "zero_optimization.offload_param.max_in_cpu",
       "no_effect: no parameters are offloaded to nvme"},
      {zero(R"("stage": 2, "offload_param": {"device": "nvme", "nvme_path": "/a"})"),
       "zero_optimization.offload_param.nvme_path",
       "no_effect: no parameters are offloaded to nvme"},
      {zero(R"("stage": 3, "offload_param": {"device": "nvme", "buffer_count": 9})"),
       "zero_optimization.offload_param.buffer_count",
       "no_effect: the plan has the buffers that copies need"},
      {zero(R"("stage": 3, "offload_param": {"device": "nvme", "buffer_size": 9})"),
       "zero_optimization.offload_param.buffer_size",
       "no_effect: buffers are as large as the layers"},
      {zero(R"("stage": 3, "mics_shard_size": 2, "offload_param": {"device": "cpu"})"),
       "zero_optimization.offload_param.device",
       "honoured: parameters are in the host's memory, and gathered from there"},
      {zero(R"("offload_optimizer": {"device": "nvme", "pin_memory": true})"),
       "zero_optimization.offload_optimizer.pin_memory", "honoured"},
      {zero(R"("offload_optimizer": {"device": "nvme"})"),
       "zero_optimization.offload_optimizer.device",
       "error: nvme needs nvme_path: a directory on the drive, or one for each"},
      {zero(R"("offload_optimizer": {"device": "nvme", "nvme_path": "/a"})"),
       "zero_optimization.offload_optimizer.device",
       "honoured: master weights and optimizer state are on disk"},
      {zero(R"("offload_optimizer": {"device": "nvme", "nvme_path": "/a"})"),
       "zero_optimization.offload_optimizer.nvme_path", "honoured"},
      {zero(R"("offload_optimizer": {"device": "nvme", "nvme_path": "/a"})") +
           R"(, "dstrain": {"offload": {"optimizer_on": "device"}})",
       "zero_optimization.offload_optimizer.device",
       "refused: state on disk is updated by the host: remove dstrain.offload.optimizer_on"},
      {zero(R"("offload_optimizer": {"device": "nvme", "nvme_path": "/a"})") +
           R"(, "aio": {"queue_depth": 3})",
       "aio.queue_depth", "honoured"},
      {zero(R"("offload_optimizer": {"device": "nvme", "nvme_path": "/a"})") +
           R"(, "aio": {"use_gds": false})",
       "aio.use_gds", "no_effect: off"},
      {zero(R"("offload_optimizer": {"device": "nvme", "nvme_path": "/a", "pipeline_read": true})"),
       "zero_optimization.offload_optimizer.pipeline_read",
       "no_effect: transfers always run beside the update"},
      {zero(R"("offload_optimizer": {"device": "cpu"})"),
       "zero_optimization.offload_optimizer.device",
       "honoured: master weights and optimizer state are in the host's memory"},
      {zero(R"("offload_optimizer": {"device": "cpu", "pin_memory": false})"),
       "zero_optimization.offload_optimizer.pin_memory", "honoured"},
      {zero(R"("offload_optimizer": {"device": "cpu", "buffer_count": 5})"),
       "zero_optimization.offload_optimizer.buffer_count",
       "no_effect: the plan has the buffers that copies need"},
      {zero(R"("offload_optimizer": {"device": "cpu", "ratio": 1})"),
       "zero_optimization.offload_optimizer.ratio", "honoured"},
      {zero(R"("offload_optimizer": {"device": "cpu", "ratio": 0.5})"),
       "zero_optimization.offload_optimizer.ratio", "honoured"},
      {zero(R"("offload_optimizer": {"device": "cpu", "super_offload": true})"),
       "zero_optimization.offload_optimizer.super_offload",
       "no_effect: the host always updates layer by layer with copies beside it, when the norm is "
       "known; none of it "
       "during the backward pass"},
      {zero(R"("offload_optimizer": {"device": "none", "ratio": 0.5})"),
       "zero_optimization.offload_optimizer.ratio", "no_effect: offload is off"},
      {zero(R"("offload_optimizer": {"device": "gpu"})"),
       "zero_optimization.offload_optimizer.device",
       "error: expected one of \"none\", \"cpu\", \"nvme\", found \"gpu\" (did you mean \"cpu\"?)"},
      {zero(R"("offload_optimizer": null)"), "zero_optimization.offload_optimizer",
       "no_effect: unset"},
      {zero(R"("offload_optimizer": {"device": "auto"})"),
       "zero_optimization.offload_optimizer.device", "no_effect: offload is off"},
      {zero(R"("offload_optimizer": {"device": "none", "nvme_path": null})"),
       "zero_optimization.offload_optimizer.nvme_path", "no_effect: unset"},
      {R"("aio": {"block_size": 1})", "aio.block_size", "no_effect: nothing is offloaded to nvme"},
      {R"("aio": {"use_gds": true})", "aio.use_gds", "no_effect: nothing is offloaded to nvme"},
      {zero(R"("offload_param": {"device": "nvme"})") + R"(, "aio": {"use_gds": true})",
       "aio.use_gds", "no_effect: nothing is offloaded to nvme"},
      {zero(R"("stage": 3, "offload_param": {"device": "nvme"})") + R"(, "aio": {"use_gds": true})",
       "aio.use_gds", "no_effect: GPUDirect Storage is not used: files go through host memory"},
      {zero(R"("stage": 3, "offload_param": {"device": "nvme"})") +
           R"(, "aio": {"use_gds": false})",
       "aio.use_gds", "no_effect: off"},
      {zero(R"("stage": 3, "offload_param": {"device": "nvme"})") + R"(, "aio": {"block_size": 1})",
       "aio.block_size", "honoured"},
      {R"("dstrain": {"offload": {"activations": "cpu"}})", "dstrain.offload.activations",
       "honoured: activations wait in the host's memory"},
      {R"("dstrain": {"offload": {"activations": "nvme"}})", "dstrain.offload.activations",
       "error: nvme needs dstrain.offload.nvme_path: a directory on the drive, or one for each"},
      {R"("dstrain": {"offload": {"activations": "nvme", "nvme_path": "/a"}})",
       "dstrain.offload.activations", "honoured: activations wait on disk"},
      {R"("dstrain": {"offload": {"activations": "nvme", "nvme_path": "/a"}}, "aio": {"queue_depth": 3})",
       "aio.queue_depth", "honoured"},
      {zero(R"("offload_optimizer": {"device": "nvme", "nvme_path": "/a"})") +
           R"(, "dstrain": {"offload": {"activations": "nvme"}})",
       "dstrain.offload.activations", "honoured: activations wait on disk"},
      {R"("dstrain": {"offload": {"activations": "cpu", "nvme_path": "/a"}})",
       "dstrain.offload.nvme_path", "no_effect: no activations are offloaded to nvme"},
      {R"("aio": {"queue_depth": 65537})", "aio.queue_depth",
       "error: expected an integer from 1 to 65536, found 65537"},
      {zero(R"("offload_param": {"device": "none", "nvme_path": ["/a", "/b"]})"),
       "zero_optimization.offload_param.nvme_path", "no_effect: offload is off"},
      {zero(R"("offload_param": {"device": "none", "nvme_path": []})"),
       "zero_optimization.offload_param.nvme_path",
       "error: expected a string or a list of strings, found []"},
      {R"("aio": {"thread_count": 1})", "aio.thread_count",
       "no_effect: DeepSpeed ignores it: the key is intra_op_parallelism"},
  });
}

TEST_CASE("verdicts: nvme_path with an empty name is an error where it is used, auto is unset") {
  const std::string nameless =
      "error: has an empty name: expected a directory on the drive, or a list of one for each";
  for (const std::string path : {R"("")", R"([""])", R"(["", "a"])"}) {
    const std::string on_nvme = R"({"device": "nvme", "nvme_path": )" + path + "}";
    const std::string activations = R"({"activations": "nvme", "nvme_path": )" + path + "}";
    check_all({
        {zero(R"("stage": 1, "offload_optimizer": )" + on_nvme),
         "zero_optimization.offload_optimizer.nvme_path", nameless},
        {zero(R"("stage": 3, "offload_param": )" + on_nvme),
         "zero_optimization.offload_param.nvme_path", nameless},
        {R"("dstrain": {"offload": )" + activations + "}", "dstrain.offload.nvme_path", nameless},
        {zero(R"("stage": 2, "offload_param": )" + on_nvme),
         "zero_optimization.offload_param.nvme_path",
         "no_effect: no parameters are offloaded to nvme"},
        {zero(R"("offload_optimizer": {"device": "cpu", "nvme_path": )" + path + "}"),
         "zero_optimization.offload_optimizer.nvme_path",
         "no_effect: nothing is offloaded to nvme"},
    });
  }
  const std::string automatic = R"({"device": "nvme", "nvme_path": "auto"})";
  check_all({
      {zero(R"("stage": 1, "offload_optimizer": )" + automatic),
       "zero_optimization.offload_optimizer.device",
       "error: nvme needs nvme_path: a directory on the drive, or one for each"},
      {zero(R"("stage": 3, "offload_param": )" + automatic),
       "zero_optimization.offload_param.device",
       "error: nvme needs nvme_path: a directory on the drive, or one for each"},
      {R"("dstrain": {"offload": {"activations": "nvme", "nvme_path": "auto"}})",
       "dstrain.offload.activations",
       "error: nvme needs dstrain.offload.nvme_path: a directory on the drive, or one for each"},
      {zero(R"("offload_optimizer": {"device": "nvme", "nvme_path": "/a"})") +
           R"(, "dstrain": {"offload": {"activations": "nvme", "nvme_path": "auto"}})",
       "dstrain.offload.activations", "honoured: activations wait on disk"},
  });
}

TEST_CASE("offload of the optimizer and the device's memory reach the job") {
  const Job job = ask(trains_with(R"("zero_optimization": {"stage": 2,
      "offload_optimizer": {"device": "cpu", "pin_memory": false, "ratio": 0.25}},
      "dstrain": {"data": {"path": "x"}, "device_memory": "1.5GiB",
                  "offload": {"optimizer_on": "device"}})"))
                      .job();
  CHECK(job.offload ==
        OffloadConfig{OffloadTo::cpu, UpdateOn::device, /*ratio=*/0.25, /*pin_memory=*/false});
  CHECK(job.device_memory == int64_t{3} << 29);
  CHECK(ask(trains_with(R"("zero_optimization": {"cpu_offload": true})")).job().offload.optimizer ==
        OffloadTo::cpu);
  CHECK(ask(trains_with("")).job().offload == OffloadConfig{});
  CHECK(ask(trains_with(R"("zero_optimization": {"offload_optimizer":
            {"device": "nvme", "nvme_path": ["/a", "/b"]}})"))
            .job()
            .offload.nvme_paths == std::vector<std::string>{"/a", "/b"});
  CHECK(ask(trains_with(R"("zero_optimization": {"offload_optimizer":
            {"device": "nvme", "nvme_path": "/a"}},
            "dstrain": {"data": {"path": "x"}, "offload": {"read_ahead": "2KB"}})"))
            .job()
            .offload.read_ahead == 2000);
  const OffloadConfig both = ask(trains_with(R"("zero_optimization": {"stage": 3,
      "offload_param": {"device": "nvme", "nvme_path": "/a", "max_in_cpu": 7},
      "offload_optimizer": {"device": "nvme", "nvme_path": ["/b", "/a"]}})"))
                                 .job()
                                 .offload;
  const auto activations = [](const std::string& members) {
    return ask(trains_with(members)).job().offload;
  };
  const OffloadConfig on_disk = activations(R"("dstrain": {"data": {"path": "x"},
                     "offload": {"activations": "nvme", "nvme_path": "/c"}})");
  CHECK(on_disk.activations == OffloadTo::nvme);
  CHECK(on_disk.nvme_paths == std::vector<std::string>{"/c"});
  const std::string kept = R"("activation_checkpointing": {"cpu_checkpointing": true})";
  CHECK(activations(kept).activations == OffloadTo::none);
  CHECK(activations(kept + R"(, "dstrain": {"data": {"path": "x"}, "recompute": "selective"})")
            .activations == OffloadTo::cpu);
  CHECK(both.parameters == OffloadTo::nvme);
  CHECK(both.max_in_cpu == 7);
  CHECK(both.nvme_paths == std::vector<std::string>{"/a", "/b"});
}

TEST_CASE("verdicts: a number of bytes") {
  check_all({
      {R"("dstrain": {"device_memory": 1000})", "dstrain.device_memory", "honoured"},
      {R"("dstrain": {"device_memory": "2 apples"})", "dstrain.device_memory",
       "error: expected a number of bytes of at least 0 or a text such as \"2GB\", found \"2 "
       "apples\""},
      {R"("dstrain": {"offload": {"read_ahead": "1GB"}})", "dstrain.offload.read_ahead",
       "no_effect: no optimizer state is offloaded to nvme"},
      {zero(R"("offload_optimizer": {"device": "nvme", "nvme_path": "/a"})") +
           R"(, "dstrain": {"offload": {"read_ahead": "1GB"}})",
       "dstrain.offload.read_ahead", "honoured"},
      {R"("dstrain": {"offload": {"optimizer_on": "host"}})", "dstrain.offload.optimizer_on",
       "no_effect: the optimizer is not offloaded"},
  });
}
