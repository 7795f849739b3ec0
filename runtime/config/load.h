// The door of the configuration: a DeepSpeed file plus the command line become a checked Job, with
// a verdict for every key and the origin of every value. Stands on the reader (text -> tree), the
// key tables (keys/) and job.h. Invariant: a LoadedConfig that load_config returns holds no error,
// so nothing above ever has to look at JSON or judge a value again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/job.h"

namespace dstrain {

// What becomes of a key. The last four stop a training run.
enum class State : uint8_t { honoured, no_effect, refused, not_yet, unknown, error };

std::string_view name_of(State state);  // "no_effect"
constexpr bool is_error(State state) {
  return state >= State::refused;
}

struct Verdict {
  std::string key;           // dotted path: "zero_optimization.stage"; empty: the file itself
  int line = 0, column = 0;  // from 1, in the configuration file; 0 where the value is not in it
  State state = State::honoured;
  std::string message;  // empty: nothing to say
  std::string where;    // "ds_config.json:12:5", "--set", "--steps", or the file's name alone
  bool echo = false;    // repeats others: a section for its keys, a key for a section judged whole
  bool warns = false;   // the run goes on, and says this once
};

// Where a value of the run came from, in the order in which dstrain reads them.
struct Setting {
  std::string key;    // as in the file; what only the command line knows stands under "run."
  std::string value;  // JSON text
  std::string
      origin;  // "ds_config.json:12:5", "--set", "--steps", "default", "auto: ...", "derived: ..."
};
using Settings = std::vector<Setting>;

// The command line, as parsed; absent means not given.
struct ConfigRequest {
  std::string path;
  std::vector<std::string> sets;     // path.to.key=value, later ones win
  std::vector<std::string> ignored;  // path.to.key, as if the file did not have it
  std::optional<int64_t> ranks;      // world size; absent: nothing that depends on it is judged
  std::string ranks_origin = "--num_gpus";  // how messages name the source of `ranks`
  std::optional<std::string> device, model, data, output, init_weights, resume;
  std::optional<int64_t> steps, seed, save_interval;
  std::optional<std::string> recompute;  // "selective" or an interval
  bool overwrite = false, resume_with_changes = false;
  bool need_data = false;  // a missing dstrain.data.path is an error (training)
};

struct LoadedConfig {
  Job job;                        // complete where `verdicts` has no error and ranks were given
  std::vector<Verdict> verdicts;  // the file's order, then the command line's
  Settings settings;
  std::vector<std::string> warnings;  // for rank 0 to print once
  // The file names no batch size: the micro-batch is the default, which may be made smaller to fit.
  bool default_batch = false;

  // Records what the launcher settles after loading: nothing where `key` has that value already.
  void settle(const std::string& key, const std::string& value, const std::string& why);
};

// Throws UserError where there is no device of that name.
void check_device_name(const std::string& device);

// The job that `request` asks for. Throws one UserError with every reason why it cannot train, a
// line each ("ds_config.json:12:5: zero_optimization.stage: ...").
LoadedConfig load_config(const ConfigRequest& request);

// The verdicts alone (`dstrain check`): whatever is wrong inside the file becomes a verdict,
// malformed text included. Throws UserError where the file or the request itself cannot be read.
LoadedConfig check_config(const ConfigRequest& request);

// Whether any verdict stops a run: `check` exits 1.
bool has_errors(const std::vector<Verdict>& verdicts);

std::string check_text(
    const std::vector<Verdict>& verdicts);  // a line per key, then a summary line
std::string check_json(const std::vector<Verdict>& verdicts);  // contract: [{"key", "line", ...}]

// resolved_config.json: every value with its origin. `loaded.job` has the last word on what the
// launcher settles after loading (vocabulary size, device).
std::string resolved_config_json(const LoadedConfig& loaded);

// The Job that resolved_config_json wrote. Throws UserError naming `source` where the text is not
// one.
Job job_from_resolved(const std::string& text, const std::string& source = "resolved_config.json");

// The published state of every key: the text of docs/config-keys.md.
std::string key_table_markdown();

}  // namespace dstrain
