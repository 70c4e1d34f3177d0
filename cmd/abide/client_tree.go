package main

import (
	"abide/client"
	"abide/internal/cli"
	"abide/protocol"
)

// treePage is how many promises one request of abide tree asks for.
const treePage = 100

// treeCommand shows a call tree.
type treeCommand struct {
	serverFlags
	watchFlags
	ID string `arg:"" help:"The id of its root, or of a part of it."`
}

// Run shows the tree.
func (c *treeCommand) Run(in surroundings) error {
	s, stop, err := c.open(in)
	if err != nil {
		return err
	}
	defer stop()
	return s.show(c.watchFlags, func() (string, bool, error) {
		tree, whole, err := s.tree(c.ID)
		if err != nil {
			return "", false, err
		}
		final := !tree.Pending()
		// The reference draws the tree for programs too: JSON comes only where it is asked for.
		if c.JSON != nil && *c.JSON {
			text, err := s.text(tree.JSON(c.ID, whole), nil)
			return text, final, err
		}
		return s.screen().Tree(tree, c.ID, whole), final, nil
	})
}

// tree reads the call tree that a promise belongs to; whole tells that it is the root's own. A promise that does not
// exist makes an empty tree.
func (s *session) tree(id string) (tree *cli.Tree, whole bool, err error) {
	tree = &cli.Tree{}
	ctx, cancel := s.bounded()
	root, err := s.client.PromiseGet(ctx, id)
	cancel()
	switch {
	case client.Status(err) == protocol.StatusNotFound:
	case err != nil:
		return nil, false, s.explain(err)
	default:
		tree.Add(root)
	}
	origin, _ := root.Tags.Get(protocol.TagOrigin)
	if origin == "" {
		origin = id
	}
	search := &protocol.PromiseSearch{Tags: cli.Tags(map[string]string{protocol.TagOrigin: origin}), Limit: treePage}
	for {
		data, err := s.data(search)
		if err != nil {
			return nil, false, err
		}
		page, err := protocol.DecodePromisesBody(data)
		if err != nil {
			return nil, false, failed("the answer's data: %v", err)
		}
		if room := tree.Add(page.Promises...); !room || page.Cursor == "" {
			return tree, origin == id, nil
		}
		search.Cursor = page.Cursor
	}
}
