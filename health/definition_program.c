/* Reads what a definition says of programs: a script's arguments, a unit's name, and whether a script may run here. */
#include <stdlib.h>

#include "base/check.h"
#include "health/check_runner.h"
#include "health/definition.h"

#define UNIT_MOST 255 /* systemd.unit(5): names are shorter than 256 bytes */

static void read_list(struct json_object *list, const char *key, struct check_definition *definition,
                      struct fault *fault) {
    size_t count = json_object_array_length(list);
    definition->args = mem_zalloc(count * sizeof *definition->args);
    for (size_t i = 0; i < count; i++) {
        struct json_object *value = json_object_array_get_idx(list, i);
        const char *text = json_object_is_type(value, json_type_string) ? json_object_get_string(value) : NULL;
        if (!text || strlen(text) != (size_t)json_object_get_string_len(value)) {
            fault_set(fault, CO_INVALID, "%s: strings of text are wanted", key);
            return;
        }
        definition->args[definition->arg_count++] = mem_strdup(text);
    }
    if (definition->args[0][0] == '\0') {
        fault_set(fault, CO_INVALID, "Invalid check: %s: the first is the program, and it is empty", key);
    }
}

/* Reads the first of both spellings that is not empty. */
void check_args_read(struct json_object *json, struct check_definition *definition, struct fault *fault) {
    static const char *const keys[] = {"ScriptArgs", "Args"};
    for (size_t i = 0; i < ARRAY_COUNT(keys) && !definition->args; i++) {
        struct json_object *list = json_get_array(json, keys[i], fault);
        if (list && json_object_array_length(list) > 0) read_list(list, keys[i], definition, fault);
    }
}

void check_unit_judge(const char *unit, struct fault *fault) {
    size_t size = strlen(unit);
    bool fine = unit[0] != '-' && size <= UNIT_MOST;
    for (size_t i = 0; i < size; i++) {
        bool letter = (unit[i] >= 'a' && unit[i] <= 'z') || (unit[i] >= 'A' && unit[i] <= 'Z');
        bool digit = unit[i] >= '0' && unit[i] <= '9';
        fine = fine && (letter || digit || strchr(":-_.\\@", unit[i]));
    }
    if (!fine) fault_set(fault, CO_INVALID, "Invalid check: OSService: \"%.100s\" is no name of a unit", unit);
}

int check_definition_permit(const struct check_definition *definition, const struct check_permission *permission,
                            bool local, struct fault *fault) {
    if (definition->arg_count == 0 || permission->scripts) return CO_OK;
    if (local && permission->local_scripts) return CO_OK;
    return fault_set(fault, CO_DENIED, "%s",
                     local ? "Scripts are disabled on this agent; to enable, configure 'enable_script_checks' or "
                             "'enable_local_script_checks' to true"
                           : "Scripts are disabled on this agent from remote calls; to enable, configure "
                             "'enable_script_checks' to true");
}
