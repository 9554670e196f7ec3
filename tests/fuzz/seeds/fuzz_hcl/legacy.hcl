/* before 1.4 */ key "" { policy = "read" } agent "" { policy = "write" } keyring = "deny"
