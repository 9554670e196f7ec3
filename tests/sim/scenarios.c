#include "base/check.h"
#include "tests/sim/story.h"

#define ROW(name, claim) {#name, claim, scenario_##name},
const struct scenario scenarios[] = {SCENARIOS(ROW)};
#undef ROW
const size_t scenario_count = ARRAY_COUNT(scenarios);
