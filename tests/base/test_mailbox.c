#include <criterion/criterion.h>

#include "base/mailbox.h"

Test(mailbox, oldest_first) {
    struct mailbox box = {NULL};
    struct mail items[3];
    cr_expect_null(mailbox_take(&box));
    cr_expect(mailbox_put(&box, &items[0]));
    cr_expect_not(mailbox_put(&box, &items[1]));
    cr_expect_not(mailbox_put(&box, &items[2]));
    struct mail *item = mailbox_take(&box);
    for (int i = 0; i < 3; i++, item = item->next) cr_assert_eq(item, &items[i]);
    cr_expect_null(item);
    cr_expect_null(mailbox_take(&box));
    cr_expect(mailbox_put(&box, &items[1]));
    cr_expect_eq(mailbox_take(&box), &items[1]);
}
