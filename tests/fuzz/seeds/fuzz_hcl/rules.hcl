# web
key_prefix "web/" { policy = "list" }
key "web/lock" { policy = "write" }
service "web" {
  policy = "write"
  intentions = "read" // none here
}
node_prefix "" { policy = "read" } session = { "" = { policy = "deny" } }
operator = "read"
lock_prefix "a" { policy = "write" }
