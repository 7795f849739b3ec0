#include "launcher/commands.h"
#include "launcher/failure.h"

namespace dstrain {

int run_check(const CheckArguments& arguments) {
  const LoadedConfig loaded = check_config(arguments.request);
  print_result(arguments.json ? check_json(loaded.verdicts) : check_text(loaded.verdicts));
  return has_errors(loaded.verdicts) ? 1 : 0;
}

}  // namespace dstrain
