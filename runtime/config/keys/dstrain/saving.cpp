// Section dstrain: which checkpoints a run saves and keeps.
#include "runtime/config/keys/key_table.h"

namespace dstrain::keys {

std::vector<KeySpec> saving() {
  const auto count = [](std::string_view key, std::string_view note) {
    return KeySpec{.key = key,
                   .type = Type::integer,
                   .fallback = "0",
                   .note = note,
                   .min = 0,
                   .max = kMaxCount};
  };
  return {
      count("dstrain.save_interval", "steps between two checkpoints; 0: never"),
      {.key = "dstrain.save_last",
       .fallback = "true",
       .note = "a run that ends saves a checkpoint of its last step too, which --resume goes on "
               "from and the next run replaces"},
      {.key = "dstrain.save_required",
       .fallback = "false",
       .note = "a checkpoint that cannot be saved ends the run; false: it is left out, with a "
               "warning"},
      count("dstrain.keep_last",
            "newest checkpoints that stay, older ones are removed after a save, or before one that "
            "lacks room; 0: all stay"),
      count("dstrain.keep_every",
            "with keep_last: checkpoints of these steps' multiples stay too; 0: none"),
  };
}

}  // namespace dstrain::keys
